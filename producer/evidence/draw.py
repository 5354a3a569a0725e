"""Draw rows of a run to label, stratified by score, in one pass over the stored scores and in bounded memory.

A row is drawn if its hash is among the smallest of its stratum. The hash depends only on the seed, the shard and the
row, so the same rows are drawn on any machine and in any order of the shards.
"""

from collections import Counter
from collections.abc import Mapping, Set
from dataclasses import dataclass
from hashlib import blake2b
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from shardsift.fleet.errors import UsageError
from shardsift.producer.evidence.strata import (
    Stratum,
    cells_of,
    check_divides,
    counted_cells,
    strata_around,
    strata_of_cells,
)
from shardsift.producer.planning.cut import Integers, RankedRun, Values

# SplitMix64: Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014.
_GOLDEN = 0x9E3779B97F4A7C15
_MIXED = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB), (31, 1))

Hashes = npt.NDArray[np.uint64]


class DrawnRow(NamedTuple):
    shard: str
    row: int  # in the input file
    stratum: Stratum


@dataclass(frozen=True, kw_only=True)
class Drawn:
    """Rows to label, in an order that does not reveal their scores, and the number of rows of each stratum."""

    rows: list[DrawnRow]
    rows_of_stratum: dict[Stratum, int]


@dataclass(frozen=True, kw_only=True)
class Earlier:
    """The rows of an earlier draw by shard, and the numbers of drawn, labelled and good rows of each stratum."""

    rows: Mapping[str, Set[int]]
    strata: Mapping[Stratum, tuple[int, int, int]]


def draw_rows(run: RankedRun, *, threshold: float, rows: int, seed: int, earlier: Earlier | None = None) -> Drawn:
    """Draw rows from all strata. After an earlier draw, draw from the strata whose labels narrow the intervals most.

    Raises UsageError if no row has a score, if all rows are on one side of the threshold, or if the earlier rows are from
    other strata.
    """
    values: Values = [] if run.ranking.within else [None]
    smallest, rows_by_cell, shards = _SmallestHashes(rows), Counter[int](), list[str]()
    for receipt, indices, (keys, _) in run.read(values):
        found = cells_of(keys, threshold)
        numbers, counts = np.unique(found, return_counts=True)
        rows_by_cell.update(dict(zip(numbers.tolist(), counts.tolist(), strict=True)))
        places = indices + receipt.first_row
        before = earlier.rows.get(receipt.shard, ()) if earlier else ()
        is_new = ~np.isin(places, list(before))
        hashes = _hashes(receipt.shard, places[is_new], seed)
        smallest.add(found[is_new], hashes, places[is_new], np.full(len(hashes), len(shards)))
        shards.append(receipt.shard)
    if not rows_by_cell:
        raise UsageError("There are no rows to draw: none has a score and a value of --within.")
    cells = counted_cells(rows_by_cell, threshold)
    strata = list(earlier.strata) if earlier else strata_around(cells, values, run.ranking.within, drawn=rows)
    stratum_of = strata_of_cells(strata, cells, values)
    sizes = Counter[Stratum]()
    for cell, count in rows_by_cell.items():
        sizes[stratum_of[cell]] += count
    kept = {stratum for stratum in sizes if stratum.low >= np.float32(threshold)}
    check_divides(threshold, kept=len(kept), rows=len(sizes))
    left = _most_useful(sizes, kept, earlier, rows) if earlier else _equal_parts(sizes, rows)
    drawn: list[tuple[int, DrawnRow]] = []
    for cell, row, shard, place in smallest.ascending():
        if left[stratum_of[cell]]:
            left[stratum_of[cell]] -= 1
            drawn.append((place, DrawnRow(shards[shard], row, stratum_of[cell])))
    return Drawn(rows=[row for _, row in sorted(drawn)], rows_of_stratum=dict(sizes))


def _equal_parts(sizes: Mapping[Stratum, int], rows: int) -> dict[Stratum, int]:
    """Divide rows equally among strata. If a stratum has too few rows, larger strata get the rest."""
    parts: dict[Stratum, int] = {}
    for index, stratum in enumerate(sorted(sizes, key=lambda stratum: (sizes[stratum], stratum.name))):
        parts[stratum] = min(sizes[stratum], (rows - sum(parts.values())) // (len(sizes) - index))
    return parts


def _most_useful(sizes: Mapping[Stratum, int], kept: Set[Stratum], earlier: Earlier, rows: int) -> Counter[Stratum]:
    """Choose how many rows to draw from each stratum, so that the variances of precision and recall become small.

    `kept` has the strata above the threshold. Each row goes to the stratum in which it reduces the sum of both variances
    most. Precision and recall are ratios of sums over strata, so the variances are computed for their linear
    approximations.
    """
    share = {stratum: (good + 0.5) / (labels + 1) for stratum, (_, labels, good) in earlier.strata.items()}
    rows_kept = sum(sizes[stratum] for stratum in kept)
    good_kept = sum(sizes[stratum] * share[stratum] for stratum in kept)
    good = sum(sizes[stratum] * share[stratum] for stratum in sizes)
    weights = {}
    for stratum, size in sizes.items():
        precision = size / rows_kept if stratum in kept else 0.0
        recall = size * ((good - good_kept) if stratum in kept else good_kept) / good**2
        weights[stratum] = (precision**2 + recall**2) * share[stratum] * (1 - share[stratum])
    drawn = Counter({stratum: number for stratum, (number, _, _) in earlier.strata.items()})
    added = Counter[Stratum]()
    for _ in range(min(rows, sum(sizes.values()) - drawn.total())):
        open_ones = [stratum for stratum in sizes if drawn[stratum] < sizes[stratum]]
        best = max(open_ones, key=lambda stratum: weights[stratum] / (drawn[stratum] * (drawn[stratum] + 1)))
        drawn[best] += 1
        added[best] += 1
    return added


_Hashed = tuple[Integers, Hashes, Integers, Integers]  # each row's cell, hash, row number and shard number


class _SmallestHashes:
    """The rows with the smallest hashes, at most `most` in each cell. `cells_of` defines a cell."""

    def __init__(self, most: int) -> None:
        self._most = most
        none = np.zeros(0, np.int64)
        self._found: _Hashed = (none, none.astype(np.uint64), none, none)
        self._added: list[_Hashed] = []  # merged into _found when they are at least as many as its rows
        self._full, self._highest = self._found[:2]  # cells with `most` rows, and the highest hash of each

    def add(self, cells: Integers, hashes: Hashes, rows: Integers, shards: Integers) -> None:
        if len(self._full):  # drop rows whose hash is too high for their full cell
            places = np.searchsorted(self._full, cells) % len(self._full)
            may = (self._full[places] != cells) | (hashes < self._highest[places])
            cells, hashes, rows, shards = cells[may], hashes[may], rows[may], shards[may]
        self._added.append((cells, hashes, rows, shards))
        if sum(len(one[0]) for one in self._added) >= len(self._found[0]):
            self._merge()

    def ascending(self) -> list[tuple[int, int, int, int]]:
        """Return (cell, row, number of the shard, low 32 bits of the hash) of each row, sorted by hash."""
        self._merge()
        cells, hashes, rows, shards = self._found
        order = np.argsort(hashes, kind="stable")
        columns = (cells, rows, shards, hashes & np.uint64(0xFFFFFFFF))
        return list(zip(*(column[order].tolist() for column in columns), strict=True))

    def _merge(self) -> None:
        cells, hashes, rows, shards = map(np.concatenate, zip(self._found, *self._added, strict=True))
        order = np.lexsort((hashes, cells))
        _, first, places = np.unique(cells[order], return_index=True, return_inverse=True)
        order = order[np.arange(len(order)) - first[places] < self._most]
        self._found, self._added = (cells[order], hashes[order], rows[order], shards[order]), []
        found, first, counts = np.unique(self._found[0], return_index=True, return_counts=True)
        is_full = counts == self._most
        self._full, self._highest = found[is_full], self._found[1][(first + counts - 1)[is_full]]


def _hashes(shard: str, rows: Integers, seed: int) -> Hashes:
    """Compute SplitMix64 of each row, keyed by the seed and the shard."""
    key = int.from_bytes(blake2b(f"{seed} {shard}".encode(), digest_size=8).digest(), "little")
    mixed = np.uint64(key) + (rows.astype(np.uint64) + np.uint64(1)) * np.uint64(_GOLDEN)
    for shift, factor in _MIXED:
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    return mixed
