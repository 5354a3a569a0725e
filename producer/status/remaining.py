"""How long a run still takes, from its pace and from what its workers hold now. Knows no Redis."""

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from fleet.ledger import Counts, Pace, RunningShard

_MOST_SHARDS = 20_000  # whose ends are computed one by one; of more, the last ones hardly matter
_LEAST_ERROR = 0.1  # of the time that is left
_ERROR_OF_ONE_SHARD = 0.4  # shards differ in size; with n done shards this falls with the square root of n


@dataclass(frozen=True, kw_only=True)
class Remaining:
    """Seconds until the last open shard is done, if as many workers as now go on as fast as workers of this run do: a range.

    `worker_seconds` is the work of all workers until then, without their waits for the last one.
    """

    low: float
    high: float
    worker_seconds: float


def remaining(counts: Counts, pace: Pace, running: Sequence[RunningShard]) -> Remaining | None:
    """None until a shard is done and workers score: the rows of a shard are unknown before.

    The shard of a silent worker waits for the end of its lease, and is begun again by another worker.
    """
    silent = [shard for shard in running if shard.is_silent]
    counts = replace(counts, queued=counts.queued + len(silent), running=counts.running - len(silent))
    running = [shard for shard in running if not shard.is_silent]
    if not counts.done or not counts.rows_in or not running or not pace.rows_lately or not counts.open:
        return None
    rows_of_a_shard = counts.rows_in / counts.done
    of_a_shard = _seconds_of_a_young_runs_shard(counts, pace, running)
    if of_a_shard is None:
        # Not the speed of the last minutes, to which workers may have contributed that are gone.
        of_a_shard = rows_of_a_shard * counts.worker_seconds / pace.rows
        left = [max(0.0, 1 - shard.rows / rows_of_a_shard) * of_a_shard for shard in running]
    else:
        left = [max(0.0, of_a_shard - _seconds_so_far(shard)) for shard in running]
    seconds = max(
        _until_the_last(left, counts.queued, of_a_shard), *(one.lease_seconds_left + of_a_shard for one in silent), 0.0
    )
    error = min(0.5, max(_LEAST_ERROR, _ERROR_OF_ONE_SHARD / math.sqrt(counts.done)))
    work = sum(left) + counts.queued * of_a_shard
    return Remaining(low=seconds * (1 - error), high=seconds * (1 + error), worker_seconds=work)


def _seconds_of_a_young_runs_shard(counts: Counts, pace: Pace, running: Sequence[RunningShard]) -> float | None:
    """What the finished shards took, while a run is so young that its whole time is "lately". Otherwise None.

    The longest texts of a window are scored first. So the rows of an unfinished window promise less than they should, which
    matters as long as a worker has finished only a few windows.
    """
    rows_done_here = pace.rows - sum(shard.rows for shard in running)  # not those restored from receipts
    seconds = sum(counts.phase_seconds.values())
    if pace.rows_lately != pace.rows or rows_done_here <= 0 or not seconds:
        return None
    return seconds / rows_done_here * counts.rows_in / counts.done


def _seconds_so_far(shard: RunningShard) -> float:
    return sum(shard.report.seconds.values()) + shard.seen_seconds if shard.report else 0.0


def _until_the_last(left: Sequence[float], queued: int, seconds_of_a_shard: float) -> float:
    """When the last worker ends, if each takes a queued shard as soon as it is free. `left` has its seconds until then."""
    if queued > _MOST_SHARDS:
        return sum(left) / len(left) + queued * seconds_of_a_shard / len(left)
    ends = list(left)
    heapq.heapify(ends)
    for _ in range(queued):
        heapq.heapreplace(ends, ends[0] + seconds_of_a_shard)
    return max(ends)
