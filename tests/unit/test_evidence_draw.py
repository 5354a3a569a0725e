"""Rows to label are drawn by their hash: uniform inside a stratum, and the same ones in any order of the shards."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from shardsift.fleet.errors import UsageError
from shardsift.producer.evidence.draw import Drawn, DrawnRow, Earlier, draw_rows
from shardsift.producer.evidence.strata import Stratum
from shardsift.producer.planning.cut import Integers, RankedRun, Rows, Values, keys_of
from shardsift.producer.planning.options import Ranking

SHARDS, ROWS = 12, 300
THRESHOLD = 3.0


@dataclass(frozen=True)
class Shard:
    """The fields of a receipt that drawing reads. The second half of a file is a task of its own."""

    shard: str
    first_row: int


@dataclass(frozen=True, kw_only=True)
class StoredScores(RankedRun):
    """A run whose stored scores are in memory."""

    scores: dict[Shard, npt.NDArray[np.float32]]
    topics: int = 0  # row 0 has the first one, and so on

    def read(self, values: Values) -> Iterator[tuple[Any, Integers, Rows]]:
        for shard, scores in self.scores.items():
            numbers = np.arange(len(scores)) % max(1, self.topics)
            if self.topics:
                names = [f"topic {number}" for number in range(self.topics)]
                values += [name for name in names[::-1] if name not in values]
                numbers = np.array([values.index(name) for name in names])[numbers]
            yield shard, np.arange(len(scores)), (keys_of(scores, numbers), np.ones(len(scores), np.int64))

    def of(self, row: DrawnRow) -> float:
        return next(
            float(scores[row.row - shard.first_row])
            for shard, scores in self.scores.items()
            if shard.shard == row.shard
        )


def run(*, topics: int = 0, order: int | None = None, scores: npt.NDArray[np.float32] | None = None) -> StoredScores:
    """Scores of many shards, in an order of their own if that is given."""
    found = np.random.default_rng(0).normal(1.5, 1.2, (SHARDS, ROWS)).astype(np.float32) if scores is None else scores
    shards = [Shard(f"000_{number:05}", ROWS * (number % 2)) for number in range(len(found))]
    places = np.arange(len(found)) if order is None else np.random.default_rng(order).permutation(len(found))
    spec: Any = None
    ranking = Ranking(within="topic" if topics else None)
    stored = {shards[place]: found[place] for place in places}
    return StoredScores(spec=spec, output_uri="", receipts=(), shards={}, ranking=ranking, scores=stored, topics=topics)


def draw(drawn_from: StoredScores, *, rows: int = 80, seed: int = 0, **more: Any) -> Drawn:
    return draw_rows(drawn_from, **{"threshold": THRESHOLD, "rows": rows, "seed": seed, **more})


def places(drawn: Drawn) -> list[tuple[str, int]]:
    return [(row.shard, row.row) for row in drawn.rows]


def labelled(drawn: Drawn, good: dict[Stratum, int]) -> Earlier:
    """All drawn rows with labels, of which these are good."""
    rows: dict[str, set[int]] = {}
    for shard, row in places(drawn):
        rows.setdefault(shard, set()).add(row)
    counts = Counter(row.stratum for row in drawn.rows)
    return Earlier(rows=rows, strata={one: (count, count, good.get(one, 0)) for one, count in counts.items()})


def test_the_same_rows_are_drawn_from_shards_in_any_order_and_others_for_another_seed() -> None:
    drawn, again, shuffled, other = draw(run()), draw(run()), draw(run(order=1)), draw(run(), seed=1)

    assert drawn == again == shuffled
    assert len({*places(drawn)}) == len(drawn.rows) == 80
    assert len({*places(drawn)} & {*places(other)}) < 20
    assert draw(run(topics=3)).rows == draw(run(topics=3, order=1)).rows


def test_each_stratum_has_its_share_of_the_rows_and_all_scored_rows_are_in_one() -> None:
    found = run()

    drawn = draw(found)

    counts = Counter(row.stratum for row in drawn.rows)
    assert sum(drawn.rows_of_stratum.values()) == SHARDS * ROWS
    assert {*counts} == {*drawn.rows_of_stratum}
    assert max(counts.values()) - min(counts.values()) <= 1
    assert all(row.stratum.has(found.of(row)) for row in drawn.rows)
    everything = draw(found, rows=10_000)
    assert Counter(row.stratum for row in everything.rows) == everything.rows_of_stratum


def test_rows_are_drawn_uniformly_inside_a_stratum() -> None:
    """By chi-square: each of 900 rows in the lowest stratum is drawn as often as any other, over 300 seeds."""
    scores = np.concatenate([np.full((3, ROWS), 1), np.full((1, ROWS), 4)]).astype(np.float32)
    times = Counter(
        (row.shard, row.row)
        for seed in range(300)
        for row in draw(run(scores=scores), rows=60, seed=seed).rows
        if row.stratum.low < THRESHOLD
    )

    assert times.total() == 300 * 30
    expected = 300 * 30 / 900
    found = [times[f"000_{shard:05}", row + ROWS * (shard % 2)] for shard in range(3) for row in range(ROWS)]
    chi_square = sum((one - expected) ** 2 / (expected * (1 - 30 / 900)) for one in found)
    assert abs(chi_square - 899) < 4 * (2 * 899) ** 0.5


def test_the_order_of_the_rows_tells_nothing_of_their_scores() -> None:
    """The hashes of rows from a large stratum are smaller than those from a small one."""
    places_of_kept = [
        place
        for seed in range(20)
        for place, row in enumerate(draw(run(), rows=80, seed=seed).rows)
        if row.stratum.low >= THRESHOLD
    ]

    assert abs(np.mean(places_of_kept) - 39.5) < 4 * 23 / len(places_of_kept) ** 0.5


def test_more_rows_are_others_and_come_from_the_stratum_with_the_largest_variance() -> None:
    found = run()
    first = draw(found)
    strata = sorted(first.rows_of_stratum, key=lambda one: one.low)
    kept = [one for one in strata if one.low >= THRESHOLD]
    good = {one: 8 for one in kept} | {strata[0]: 3}  # of about 20 labels each
    earlier = labelled(first, good)

    drawn, shuffled = draw(found, rows=40, earlier=earlier), draw(run(order=2), rows=40, earlier=earlier)

    assert drawn == shuffled
    assert not {*places(drawn)} & {*places(first)}
    assert drawn.rows_of_stratum == first.rows_of_stratum
    assert Counter(row.stratum for row in drawn.rows).most_common(1)[0][0] == strata[0]
    rest = draw(found, rows=10_000, earlier=earlier)
    assert {*places(rest)} | {*places(first)} == {
        (shard.shard, shard.first_row + row) for shard in found.scores for row in range(ROWS)
    }
    assert draw(found, rows=5, earlier=labelled(draw(found, rows=10_000), {})).rows == []


def test_of_each_value_rows_are_drawn_on_both_sides_of_the_threshold() -> None:
    drawn = draw(run(topics=3), rows=200)

    sides = Counter((row.stratum.value, row.stratum.low >= THRESHOLD) for row in drawn.rows)
    assert {*sides} == {(f"topic {number}", is_kept) for number in range(3) for is_kept in (False, True)}
    assert min(sides.values()) >= 10
    assert sum(drawn.rows_of_stratum.values()) == SHARDS * ROWS


def test_a_threshold_with_all_rows_on_one_side_is_refused_except_of_single_values() -> None:
    scores = np.tile(np.array([1, 5], np.float32), (2, ROWS // 2))

    for threshold, each in ((5.5, "No"), (0.5, "Each")):
        with pytest.raises(UsageError, match=f"^{each} row has a score of {threshold} or more. Name another threshold"):
            draw(run(scores=scores), threshold=threshold)

    drawn = draw(run(scores=scores, topics=2))

    assert [(one.value, one.low, one.high) for one in sorted(drawn.rows_of_stratum, key=lambda one: one.value)] == [
        ("topic 0", -np.inf, THRESHOLD),
        ("topic 1", THRESHOLD, np.inf),
    ]
