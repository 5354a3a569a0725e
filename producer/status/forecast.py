"""Estimate how long a run still takes, from its remaining rows and the speed of its workers, and what it costs."""

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from shardsift.fleet.ledger import Counts, Pace, RunningShard
from shardsift.fleet.ledger.records import Steering
from shardsift.fleet.process.wording import shown_duration

_LEAST_ERROR = 0.1  # share of the time left
_ERROR_OF_ONE_SHARD = 0.4  # shards differ in size; with n done shards this falls with the square root of n
_FEW_SECONDS = 10.0


@dataclass(frozen=True, kw_only=True)
class Remaining:
    """A range of seconds until the last open shard is done, if the number of workers stays the same.

    `worker_seconds` is the work of all workers until then, without the time that they wait for the last shard.
    """

    low: float
    high: float
    worker_seconds: float

    def __str__(self) -> str:
        low, high = shown_duration(self.low), shown_duration(self.high)
        if self.high < _FEW_SECONDS:
            return "seconds"
        return high if low == high else f"{low} to {high}"


def remaining(counts: Counts, pace: Pace, running: Sequence[RunningShard]) -> Remaining | None:
    """Estimate the time left. None if no worker is scoring, or if no shard is done: then the size of a shard is unknown.

    Assumes that a silent or stalled shard starts again when its lease ends.
    """
    silent = [shard for shard in running if shard.is_silent or shard.is_stalled]
    at_work = [shard for shard in running if not (shard.is_silent or shard.is_stalled)]
    if not counts.done or not counts.rows_in or not at_work or not pace.rows_lately or not counts.open:
        return None
    rows_of_a_shard = counts.rows_in / counts.done
    # Use the speed of the whole run, because that of the last minutes may include workers that are gone.
    of_a_shard = rows_of_a_shard * counts.worker_seconds / pace.rows
    of_worker: defaultdict[str, float] = defaultdict(float)  # a worker may have two shards
    for shard in at_work:
        of_worker[shard.worker or shard.name] += max(0.0, 1 - shard.rows / rows_of_a_shard) * of_a_shard
    left = list(of_worker.values())
    queued = counts.queued + len(silent)
    work = sum(left) + queued * of_a_shard
    seconds = max(
        _until_the_last(left, queued, of_a_shard), *(one.lease_seconds_left + of_a_shard for one in silent), 0.0
    )
    error = min(0.5, max(_LEAST_ERROR, _ERROR_OF_ONE_SHARD / math.sqrt(counts.done)))
    return Remaining(low=seconds * (1 - error), high=seconds * (1 + error), worker_seconds=work)


def _until_the_last(left: Sequence[float], queued: int, of_a_shard: float) -> float:
    """Return the seconds until the last worker ends.

    `left` has the seconds that each worker needs for its own shards. Each of the `queued` shards takes `of_a_shard`
    seconds.
    """
    rounds, rest = divmod(queued, len(left))
    first_to_last = sorted(left)
    ends = [first_to_last[-1] + rounds * of_a_shard]
    if rest:
        ends.append(first_to_last[rest - 1] + (rounds + 1) * of_a_shard)
    return max(ends)


@dataclass(frozen=True, kw_only=True)
class Cost:
    """The cost of the time in which workers hold shards, in the price's currency. Excludes starts and idle time."""

    so_far: float
    to_come: float | None
    per_million_rows: float | None


def cost_of(counts: Counts, left: Remaining | None, steering: Steering) -> Cost | None:
    """Compute the cost, with one GPU per worker. Returns None if no price is known."""
    so_far = steering.cost(counts.worker_seconds)
    if so_far is None:
        return None
    return Cost(
        so_far=so_far,
        to_come=steering.cost(left.worker_seconds) if left else None,
        per_million_rows=so_far / counts.rows_scored * 1e6 if counts.rows_scored else None,
    )
