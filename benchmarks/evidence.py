"""Measure how often the 95 % intervals of `producer evaluate` contain the truth.

Draws rows from simulated populations, and measures them as the command does.

python -m benchmarks.evidence --populations 1000
"""

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from shardsift.fleet.run.receipt import Receipt
from shardsift.producer.evidence.draw import draw_rows
from shardsift.producer.evidence.intervals import LabelledStratum, Share, measured
from shardsift.producer.planning.cut import Integers, RankedRun, Rows, Values, keys_of
from shardsift.producer.planning.options import Ranking

Floats = npt.NDArray[np.float64]
Random = np.random.Generator
_ROWS = 50_000
_SHARD_ROWS = 5_000


@dataclass(frozen=True)
class Population:
    """Scores, whether each row is good, and the threshold of the run."""

    scores: npt.NDArray[np.float32]
    is_good: npt.NDArray[np.bool_]
    threshold: float


@dataclass(frozen=True)
class _Shard:
    """The fields of a receipt that drawing reads."""

    shard: str
    first_row: int = 0


@dataclass(frozen=True, kw_only=True)
class SimulatedRun(RankedRun):
    population: Population

    def read(self, values: Values) -> Iterator[tuple[Receipt, Integers, Rows]]:
        for number, scores in enumerate(np.split(self.population.scores, len(self.population.scores) // _SHARD_ROWS)):
            keys = keys_of(scores, np.zeros(len(scores), np.int64))
            shard: Any = _Shard(str(number))
            yield shard, np.arange(len(scores)), (keys, np.ones(len(scores), np.int64))


def calibrated(random: Random) -> Population:
    """Draw a population in which the score says how likely a row is to be good."""
    scores = random.normal(1.5, 1.2, _ROWS)
    return _of(random, scores, _sigmoid(2 * (scores - 3)), 3)


def rare(random: Random) -> Population:
    """Draw a population in which one row in a thousand is good. Most good rows are above the threshold."""
    scores = random.normal(-4, 1.5, _ROWS)
    shares = _sigmoid(1.8 * (scores - 1.5))
    return _of(random, scores, np.minimum(1, shares * 0.001 / shares.mean()), 0)


def blind(random: Random) -> Population:
    """Draw a population in which the score says nothing about whether a row is good."""
    return _of(random, random.normal(1.5, 1.2, _ROWS), np.full(_ROWS, 0.3), 3)


def sharp(random: Random) -> Population:
    """Draw a population in which nearly all rows above the threshold are good, and nearly none below."""
    scores = random.normal(1.5, 1.2, _ROWS)
    return _of(random, scores, np.where(scores >= 3, 0.98, 0.0001), 3)


def missed(random: Random) -> Population:
    """Draw a population with good rows far below the threshold, as in a language that the model does not know."""
    scores = random.normal(1.5, 1.2, _ROWS)
    return _of(random, scores, np.where(scores > 3, 0.8, np.where(scores < 0.5, 0.02, 0.1)), 3)


def two_humps(random: Random) -> Population:
    """Draw a population of probabilities near 0 and near 1. One row in fifty is on the wrong side."""
    is_high = random.random(_ROWS) < 0.15
    scores = np.where(is_high, random.beta(8, 1, _ROWS), random.beta(1, 12, _ROWS))
    return _of(random, scores, np.where(is_high, 0.98, 0.02), 0.5)


SHAPES: tuple[Callable[[Random], Population], ...] = (calibrated, rare, blind, sharp, missed, two_humps)


def coverage(shape: Callable[[Random], Population], *, populations: int, labels: int) -> dict[str, float]:
    """Return the share of populations whose precision and recall lie in their intervals, for three thresholds.

    Also returns the mean widths of the intervals at the population's own threshold.
    """
    held: dict[str, list[bool]] = {}
    widths: dict[str, list[float]] = {"precision": [], "recall": []}
    for seed in range(populations):
        population = shape(np.random.default_rng([seed, SHAPES.index(shape)]))
        scores, is_good = population.scores, population.is_good
        others = np.quantile(scores, (0.7, 0.97)).tolist()
        thresholds = [population.threshold, *others]
        for name, threshold, found in zip(
            ("", " lower", " higher"), thresholds, _measured(population, seed, labels, thresholds), strict=True
        ):
            kept = scores >= np.float32(threshold)
            good = int(np.count_nonzero(is_good))
            truths = {
                "precision": (found[0], float(is_good[kept].mean())),
                "recall": (found[1], float(np.count_nonzero(is_good & kept)) / good if good else 1.0),
            }
            for figure, (share, truth) in truths.items():
                held.setdefault(figure + name, []).append(share.low <= truth <= share.high)
                if not name:
                    widths[figure].append(share.high - share.low)
    return {
        **{name: float(np.mean(one)) for name, one in held.items()},
        **{f"width of {name}": float(np.mean(one)) for name, one in widths.items()},
    }


def _measured(population: Population, seed: int, labels: int, thresholds: list[float]) -> list[tuple[Share, Share]]:
    spec: Any = None
    run = SimulatedRun(spec=spec, output_uri="", receipts=(), shards={}, ranking=Ranking(), population=population)
    drawn = draw_rows(run, threshold=population.threshold, rows=labels, seed=seed)
    rows_of: dict[Any, list[int]] = {stratum: [] for stratum in drawn.rows_of_stratum}
    for row in drawn.rows:
        rows_of[row.stratum].append(int(row.shard) * _SHARD_ROWS + row.row)
    strata = []
    for stratum, rows in rows_of.items():
        inside = population.scores[(population.scores >= stratum.low) & (population.scores < stratum.high)]
        at_least = [np.count_nonzero(inside >= np.float32(threshold)) for threshold in thresholds]
        strata.append(
            LabelledStratum(
                rows=len(inside),
                rows_at_least=np.array(at_least),
                scores=population.scores[rows],
                is_good=population.is_good[rows],
            )
        )
    found = measured(strata, thresholds)
    return [(one.precision, one.recall) for one in found if one.precision is not None]


def _of(random: Random, scores: Floats, shares: Floats, threshold: float) -> Population:
    return Population(scores.astype(np.float32), random.random(len(scores)) < shares, threshold)


def _sigmoid(values: Floats) -> Floats:
    found: Floats = 1 / (1 + np.exp(-values))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--populations", type=int, default=1000, help="of each shape")
    parser.add_argument("--labels", type=int, default=400)
    options = parser.parse_args()
    with ProcessPoolExecutor(2) as pool:
        measure = partial(coverage, populations=options.populations, labels=options.labels)
        for shape, found in zip(SHAPES, pool.map(measure, SHAPES), strict=True):
            rounded = {name: round(value, 3) for name, value in found.items()}
            sys.stdout.write(json.dumps({"shape": shape.__name__, **rounded}) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
