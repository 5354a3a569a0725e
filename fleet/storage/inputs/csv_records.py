"""Find the records of a CSV file: a line end inside quotes is part of a field.

Outside of quotes, the number of quotes before is even, if every quote opens or closes a field or is one of two in a row.
`stray_quotes` finds those that do not.
"""

from functools import cached_property
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from fleet.storage.inputs.line_blocks import Block, RecordEnds

_NEWLINE, _RETURN, _QUOTE, _COMMA = b'\n\r",'


class Records(Block):
    """Whole records of a CSV file."""

    @cached_property
    def starts(self) -> npt.NDArray[np.int64]:
        """Where the records begin that are not blank."""
        content = _padded(self.data)
        starts = np.concatenate([[0], _ends(content)])
        starts = starts[starts < len(self.data)]
        is_blank = (content[starts] == _NEWLINE) | ((content[starts] == _RETURN) & (content[starts + 1] == _NEWLINE))
        found: npt.NDArray[np.int64] = starts[~is_blank]
        return found

    def texts(self) -> list[bytes]:
        return [self.data[start:end] for start, end in pairwise([*self.starts.tolist(), len(self.data)])]


def stray_quotes(data: bytes) -> npt.NDArray[np.int64]:
    """Where the quotes are that are inside of a field and not doubled, in whole records."""
    content = _padded(data)
    quotes = np.flatnonzero(content == _QUOTE)
    before = content[quotes[0::2] - 1]  # at 0: the last byte, which is the padding
    after = content[quotes[1::2] + 1]
    return np.concatenate(
        [
            quotes[0::2][~np.isin(before, (_COMMA, _NEWLINE, _RETURN, _QUOTE))],
            quotes[1::2][~np.isin(after, (_COMMA, _NEWLINE, _RETURN, _QUOTE))],
        ]
    )


def lone_returns(data: bytes) -> npt.NDArray[np.int64]:
    """Where a CR ends a line by itself, in whole records."""
    content = _padded(data)
    returns = np.flatnonzero(content == _RETURN)
    lone = returns[content[returns + 1] != _NEWLINE]
    outside: npt.NDArray[np.int64] = lone[_is_outside_quotes(content, lone)]
    return outside


def _last_end(piece: bytes) -> int:
    ends = _ends(np.frombuffer(piece, np.uint8))
    return int(ends[-1]) if len(ends) else 0


def _open_record(piece: bytes) -> str | None:
    return "a quoted field has no end in this row." if piece.count(b'"') % 2 else None


def _ends(content: npt.NDArray[np.uint8]) -> npt.NDArray[np.int64]:
    """After each line end outside of quotes."""
    newlines = np.flatnonzero(content == _NEWLINE)
    ends: npt.NDArray[np.int64] = newlines[_is_outside_quotes(content, newlines)] + 1
    return ends


def _is_outside_quotes(content: npt.NDArray[np.uint8], places: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    is_outside: npt.NDArray[np.bool_] = np.searchsorted(np.flatnonzero(content == _QUOTE), places) % 2 == 0
    return is_outside


def _padded(data: bytes) -> npt.NDArray[np.uint8]:
    """The content and one more line end."""
    return np.frombuffer(data + b"\n", np.uint8)


RECORDS = RecordEnds(last_end=_last_end, open_record=_open_record)
