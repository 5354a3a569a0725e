"""Divide the rows of a run into strata by ranges of scores and, with `--within`, by value."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from urllib.parse import quote, unquote

import numpy as np
import numpy.typing as npt

from shardsift.fleet.errors import UsageError
from shardsift.fleet.process.wording import counted
from shardsift.producer.planning.cut import Integers, Values, keys_of, scores_of_keys

_LOW_BITS = 19  # of a key; the other bits divide the scores between two powers of 2 into 16 cells
_GROWTH = (1, 2, 4, 8)  # relative sizes of the strata on each side of the threshold, the nearest first
_ROWS_OF_STRATUM = 10  # rows to label in each stratum, unless very few are drawn
_NAME = re.compile(r"([0-9a-f]{8})-([0-9a-f]{8})(?: ([^=]+)=(.*))?", re.DOTALL)

Scores = npt.NDArray[np.float32]


@dataclass(frozen=True, kw_only=True)
class Stratum:
    """The rows with a score from `low` to below `high` and, unless `within` is None, with `value` in the column `within`."""

    low: float
    high: float
    within: str | None = None
    value: str = ""

    @property
    def name(self) -> str:
        """The stratum's name in a sheet. It encodes the scores, so that a person who labels cannot read them."""
        low, high = np.array([self.low, self.high], np.float32).view(np.uint32).tolist()
        return f"{low:08x}-{high:08x}{'' if self.within is None else f' {quote(self.within)}={self.value}'}"

    def __str__(self) -> str:
        bounds = [f"{self.low:.6g} or more"] if self.low > -np.inf else []
        bounds += [f"less than {self.high:.6g}"] if self.high < np.inf else []
        scores = f"score {' and '.join(bounds)}" if bounds else "any score"
        return scores if self.within is None else f"{self.within} {self.value}, {scores}"

    def has(self, score: float) -> bool:
        return self.low <= score < self.high or score == self.high == np.inf


def stratum_named(name: str) -> Stratum:
    """Parse a `Stratum.name`. Raises UsageError if `name` has another form."""
    found = _NAME.fullmatch(name)
    if not found:
        raise UsageError(f"{name!r} is no stratum of `producer sample`. Leave this column as it was written.")
    low, high = np.array([int(found[1], 16), int(found[2], 16)], np.uint32).view(np.float32).tolist()
    return Stratum(low=low, high=high, within=found[3] and unquote(found[3]), value=found[4] or "")


def cells_of(keys: Integers, threshold: float) -> Integers:
    """Return the cell of each row. `keys`, from `keys_of`, combine each row's score with its value of `--within`.

    A cell has the rows with one value of `--within` and a narrow range of scores, on one side of the threshold.
    """
    (at,) = keys_of(np.array([threshold], np.float32), np.zeros(1, np.int64))
    found: Integers = ((keys >> _LOW_BITS) << 1) + ((keys & 0xFFFFFFFF) >= at)
    return found


@dataclass(frozen=True)
class Cells:
    """The cells that have rows, ascending, and the number of a run's scored rows in each.

    `cells_of` defines a cell.
    """

    cells: Integers
    rows: Integers
    threshold: float

    @property
    def numbers(self) -> Integers:
        """The index of each cell's value of `--within`."""
        return self.cells >> (33 - _LOW_BITS)

    @property
    def lowest(self) -> Scores:
        """The lowest score that each cell can have."""
        scores = scores_of_keys((self.cells >> 1) << _LOW_BITS)
        found: Scores = np.where(self.cells & 1, np.maximum(scores, np.float32(self.threshold)), scores)
        return found


def counted_cells(rows_by_cell: Mapping[int, int], threshold: float) -> Cells:
    cells = sorted(rows_by_cell)
    return Cells(np.array(cells, np.int64), np.array([rows_by_cell[cell] for cell in cells]), threshold)


def strata_around(cells: Cells, values: Values, within: str | None, *, drawn: int) -> list[Stratum]:
    """Divide the rows into strata, none of them empty, for a sample of `drawn` rows.

    On each side of the threshold, a stratum has about twice the rows of the next stratum towards the threshold. Raises
    UsageError if there are more strata than rows to draw.
    """
    most = max(1, min(len(_GROWTH), drawn // (2 * len(values) * _ROWS_OF_STRATUM)))
    lowest, found = cells.lowest, list[Stratum]()
    for number, value in enumerate(values):
        is_above = lowest >= np.float32(cells.threshold)
        above, below = (np.flatnonzero((cells.numbers == number) & side) for side in (is_above, ~is_above))
        starts = _ends(cells.rows[above], most) + 1  # of the next stratum
        ends = _ends(cells.rows[below[::-1]], most)
        edges = [*lowest[below[::-1][ends[ends < len(below) - 1]]], *lowest[above[starts[starts < len(above)]]]]
        edges += [cells.threshold, *([-np.inf] if len(below) else []), *([np.inf] if len(above) else [])]
        bounds = np.unique(np.array(edges, np.float32)).tolist()
        found += [Stratum(low=low, high=high, within=within, value=text_of(value)) for low, high in pairwise(bounds)]
    if len(found) > drawn:
        raise UsageError(f"Draw more than {counted(drawn, 'row')}: each of {len(found):,} strata needs one.")
    return found


def strata_of_cells(strata: Iterable[Stratum], cells: Cells, values: Values) -> dict[int, Stratum]:
    """Find the stratum of each cell.

    Raises UsageError if a stratum has a value that no row has, if a cell is in no stratum, or if the threshold is not a
    limit of a stratum.
    """
    found: dict[int, Stratum] = {}
    of_value: dict[str, list[Stratum]] = {text_of(value): [] for value in values}
    for stratum in sorted(strata, key=lambda stratum: stratum.low):
        if stratum.value not in of_value:
            raise UsageError(
                f"No row of this run is in the stratum {stratum}. Name the run that the rows were drawn from."
            )
        of_value[stratum.value].append(stratum)
    for number, here in enumerate(of_value.values()):
        lows, highs = np.array([(-np.inf, -np.inf), *((stratum.low, stratum.high) for stratum in here)], np.float32).T
        own = np.flatnonzero(cells.numbers == number)
        lowest = cells.lowest[own]
        places = np.searchsorted(lows, lowest, side="right") - 1
        is_inside = (lowest < highs[places]) | (highs[places] == np.inf)
        if not is_inside.all() or np.float32(cells.threshold) not in (*lows, *highs):
            raise UsageError(
                f"These rows are not of the strata around {cells.threshold:.6g}. Name the threshold that they were drawn around "
                "with --at, and leave all of them in the sheet."
            )
        found |= {int(cell): here[place - 1] for cell, place in zip(cells.cells[own], places, strict=True)}
    return found


def check_divides(threshold: float, *, kept: int, rows: int) -> None:
    """Raise UsageError if the threshold keeps all rows or none."""
    if kept in (0, rows):
        each = "Each" if kept else "No"
        raise UsageError(f"{each} row has a score of {threshold:.6g} or more. Name another threshold with --at.")


def text_of(value: str | int | None) -> str:
    return "" if value is None else str(value)


def _ends(rows: Integers, most: int) -> Integers:
    """Divide the cells on one side of the threshold into at most `most` groups. Each has about twice the rows of the one before.

    `rows` has each cell's number of rows; the cell nearest to the threshold comes first. Returns the index of the last cell
    of each group except the last group.
    """
    if not len(rows):
        return np.zeros(0, np.int64)
    shares = np.cumsum(_GROWTH[:most])[:-1] / sum(_GROWTH[:most])
    return np.unique(np.searchsorted(np.cumsum(rows), shares * rows.sum()))
