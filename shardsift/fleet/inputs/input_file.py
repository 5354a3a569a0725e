"""The interface of an input file, and the records of its rows that cannot be read."""

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

import numpy as np
import pyarrow as pa

from shardsift.fleet.errors import ShardError
from shardsift.fleet.process.wording import counted

# Bad rows, which cannot be read. A run counts them as errored rows; a shard with too many of them fails.

_MOST_DETAIL = 200  # characters, because a detail contains names from the file
_SHOWN = 3


@dataclass(frozen=True, kw_only=True, slots=True)
class BadRow:
    position: str  # in the file, such as "line 7"
    reason: str  # rows are counted by reason, so there must be few
    detail: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.position}: {self.detail[:_MOST_DETAIL]}"


BadRows = dict[int, BadRow]  # by the number of the row in its file, from 0
LeftOut = dict[int, tuple[str, ...]]  # by the number of the row: its fields that the output will lack


class NotedRows(BadRows):
    """Bad rows. For good rows, `left_out` has their fields that are in no column, so that the output lacks them."""

    def __init__(self) -> None:
        super().__init__()
        self.left_out: LeftOut = {}

    def keep(self, rows: Collection[int]) -> None:
        for found in (self, self.left_out):
            for row in found.keys() - rows:
                del found[row]


def note_bad_rows(
    found: BadRows, bad: BadRows | None, *, first_row: int, uri: str, left_out: LeftOut | None = None
) -> None:
    """Add a block's bad rows, `found`, to `bad`. If `bad` is a NotedRows, also adds `left_out` to it.

    `found` and `left_out` number rows within the block, whose first row is row `first_row` of the file. If `bad` is
    None, raises ShardError for the first bad row.
    """
    if bad is None:
        for row in found.values():
            raise ShardError(f"{uri}, {row}. {row.remedy}")
    else:
        for index, row in found.items():
            bad[first_row + index] = row
    if isinstance(bad, NotedRows) and left_out:
        bad.left_out |= {first_row + index: names for index, names in left_out.items()}


_Rows = TypeVar("_Rows", pa.Table, pa.RecordBatch)


def with_nulls(rows: _Rows, bad: Collection[int]) -> _Rows:
    if not bad:
        return rows
    is_bad = np.isin(np.arange(len(rows)), list(bad))
    indices = pa.array(np.arange(len(rows)), mask=is_bad)
    return type(rows).from_arrays([_taken(column, indices) for column in rows.columns], schema=rows.schema)


def _taken(column: pa.Array | pa.ChunkedArray, indices: pa.Int64Array) -> pa.Array | pa.ChunkedArray:
    if pa.types.is_dictionary(column.type):
        return column.cast(column.type.value_type).take(indices).cast(column.type)
    return column.take(indices)


_ROUNDING = 1e-9  # 0.29 of 100 rows are 28.999999999999996 in floats
_FLOOR = 10  # bad rows that are always allowed in a shard; in a run, if they are at most a tenth of its rows


def too_many_bad_rows(number: int, rows: int, most_share: float, *, of_run: bool) -> str:
    """Return an error message if more than `most_share` of the rows are bad, otherwise an empty text.

    The message names the option that would allow them. If `most_share` is 0, no row may be bad. Otherwise a shard may
    have ten bad rows in any case, because a small shard may exceed the share by chance. A whole run (`of_run`) may have
    ten or a tenth of its rows in any case, whichever is less.
    """
    floor = min(_FLOOR, rows // 10) if of_run else _FLOOR
    allowed = math.floor(max(most_share * rows, floor if most_share else 0) + _ROUNDING)
    if number <= allowed:
        return ""
    would_do = math.ceil(1000 * number / rows) / 1000
    return (
        f"{counted(number, 'row')} of {rows:,} cannot be read, and --max-bad-rows {most_share:g} allows {allowed:,}; "
        f"--max-bad-rows {would_do:g} would do, in a run to another --output"
    )


@dataclass(kw_only=True)
class FirstBadRows:
    number: int = 0
    first: list[BadRow] = field(default_factory=list)

    def add(self, rows: Collection[BadRow]) -> None:
        self.number += len(rows)
        self.first += list(rows)[: _SHOWN - len(self.first)]

    def __str__(self) -> str:
        more = self.number - len(self.first)
        return f"{'; '.join(map(str, self.first))}{f'; and {more:,} more' if more else ''}. {self.first[0].remedy}".rstrip()


STEP_ROWS = 1024


class InputFile(Protocol):
    """The rows of a file, in order. Every pass over the file gives the same rows."""

    @property
    def schema(self) -> pa.Schema: ...

    def batches(
        self,
        columns: Sequence[str] | None = None,
        *,
        bad: BadRows | None = None,
        most_rows: int = STEP_ROWS,
        use_threads: bool = True,
    ) -> Iterator[pa.RecordBatch]:
        """Yield all rows in batches of at most `most_rows`. If `columns` is None, they have all columns.

        A row that cannot be read is null in every column, and is added to `bad` before its batch is yielded. If `bad`
        is None, such a row raises ShardError with its position. Iterate in a `translated` block, which converts the
        errors of reading.
        """

    def count_rows(self, most: int | None = None) -> int:
        """Return the number of rows, or `most` if there are more.

        Files without a footer are read as far as necessary.
        """
