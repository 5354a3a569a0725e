"""Draw the Runs page's JSON: the list of runs, and of one run its status, as `producer status` has it, its shards and scores."""

import math
import random
import time
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, replace

from fleet.errors import UsageError
from fleet.ledger import Ledger
from fleet.ledger.results import (
    ShardDetails,
    ShardStates,
    State,
    read_shard_details,
    read_shard_names,
    read_shard_states,
)
from fleet.run.receipt import Histogram, Receipt
from producer.scores.distribution import Distribution, threshold_of
from producer.scores.examples import examples
from producer.status import Present, RunStatus, run_status
from producer.status.advice import level, verdict, what_next, why_a_person
from producer.status.screen import present_line, status_lines
from producer.status.watch import progress_line

_MOST_RUNS = 50
_MOST_FAILURES = 20  # with their tracebacks
_MOST_LISTED = 1000  # workers, machines and running shards
MOST_CELLS = 2000  # of the strip; in a larger run a cell is several shards
_MOST_DETAILS = 100  # shards of a cell
_URGENCY = {State.FAILED: 0, State.RUNNING: 1, State.QUEUED: 2, State.DONE: 3}


class RunLook:
    """Looks at one run again and again. Keeps what does not change between looks. One thread may look at a time.

    Reading all shards takes at most this share of the time, so those of a large run are read less often than its status.
    """

    def __init__(self, ledger: Ledger, run_id: str, *, share_of_time: float = 0.02) -> None:
        self._ledger, self._run_id, self._share_of_time = ledger, run_id, share_of_time
        self._names: list[str] = []
        self._strip: dict[str, object] = {}
        self._rest_until = 0.0

    def look(self) -> dict[str, object]:
        """Raises UsageError for an unknown run, and redis.RedisError."""
        status = run_status(self._ledger, self._run_id, most_failures=_MOST_FAILURES)
        if time.monotonic() >= self._rest_until:
            self._look_at_shards(status.counts.shards)
        return {
            **_bounded(status),
            **summary(status),
            "next": _what_next(status),
            "lines": [line.split(maxsplit=1) for line in status_lines(status) if not line.startswith(" ")],
            "strip": self._strip,
            "scores": _score_charts(status),
            "throughput": [
                asdict(point) | {"rows_per_second": round(point.rows_per_second, 1)}
                for point in self._ledger.history(self._run_id)
            ],
        }

    def details(self, first: str, last: str) -> list[dict[str, object]]:
        """The shards of a cell. Of many, a hundred: failed and running ones before others."""
        names = self._names or read_shard_names(self._ledger.redis, self._run_id)
        begin = bisect_left(names, first)
        cell = names[begin : min(bisect_right(names, last), begin + shards_per_cell(len(names)))]
        found = read_shard_details(self._ledger.redis, self._run_id, cell)
        return [_details(one) for one in sorted(found, key=lambda one: _URGENCY[one.state])[:_MOST_DETAILS]]

    def rows(self, seed: str) -> dict[str, object]:
        """Some rows of a random finished shard, for a person to judge. Raises what `examples` raises."""
        done = sorted(read_shard_states(self._ledger.redis, self._run_id).done)
        if not done:
            raise UsageError(f"No shard of {self._run_id} is done yet.")
        return asdict(examples(self._ledger, self._run_id, random.Random(seed).choice(done), seed=seed))

    def _look_at_shards(self, shards: int) -> None:
        began = time.monotonic()
        if len(self._names) != shards:
            self._names = read_shard_names(self._ledger.redis, self._run_id)
        self._strip = strip(self._names, read_shard_states(self._ledger.redis, self._run_id))
        ended = time.monotonic()
        self._rest_until = ended + (ended - began) / self._share_of_time


def runs_list(ledger: Ledger) -> dict[str, object]:
    """The newest runs with their state. Raises redis.RedisError."""
    run_ids, present = ledger.run_ids(), Present.read(ledger.redis)
    return {
        "present": present_line(present),
        "runs_in_all": len(run_ids),
        "runs": [_listed(ledger, run_id, present) for run_id in run_ids[:_MOST_RUNS]],
    }


def _listed(ledger: Ledger, run_id: str, present: Present) -> dict[str, object]:
    try:
        status = run_status(ledger, run_id, present=present, most_failures=1)
    except UsageError as error:
        return {"run_id": run_id, "error": str(error)}
    said = summary(status)
    return {
        "run_id": status.run_id,
        "state": status.word,
        "counts": asdict(status.counts),
        "rows_per_second": round(status.rows_per_second, 1),
        **said,
        "why": said["headline"] if why_a_person(status) else None,
    }


def summary(status: RunStatus) -> dict[str, object]:
    """What a list of runs says of each, and the page of a run first."""
    said = verdict(_with_one_failure(status))
    return {
        "level": level(status),
        "headline": progress_line(status) if said == status.word else _without_word(said, status),
        "time_left": status.time_left or None,
    }


def _without_word(said: str, status: RunStatus) -> str:
    """The page has the word before it."""
    return said.removeprefix(f"{status.word}: ").removeprefix(f"{status.word}, ")


def _bounded(status: RunStatus) -> dict[str, object]:
    """The status as `producer status --json` prints it, with the first of many workers and shards."""
    return replace(
        status,
        workers=status.workers[:_MOST_LISTED],
        machines=status.machines[:_MOST_LISTED],
        running=status.running[:_MOST_LISTED],
        retries=tuple(replace(one, traceback="") for one in status.retries[:_MOST_FAILURES]),
    ).as_json() | {"workers_in_all": len(status.workers)}


def _what_next(status: RunStatus) -> list[str]:
    """The lines below `producer status`, without what the verdict says."""
    found = _with_one_failure(status)
    lines = [line for line in what_next(found) if line not in verdict(found) and not line.startswith(" ")]
    return (
        [*lines, f"This page does not look at the output: producer status {status.run_id}"]
        if status.is_published
        else lines
    )


def _with_one_failure(status: RunStatus) -> RunStatus:
    """One failed shard for all of them, because the page has a list of those."""
    return replace(status, failures=status.failures[:1])


def _details(shard: ShardDetails) -> dict[str, object]:
    """Of a receipt, what a person asks for."""
    receipt = shard.receipt
    return asdict(replace(shard, receipt=None)) | {"receipt": _told(receipt) if receipt else None}


def _told(receipt: Receipt) -> dict[str, object]:
    made = receipt.provenance
    return {
        "rows_in": receipt.rows_in,
        "rows_kept": receipt.rows_kept,
        "rows_dropped": receipt.rows_dropped,
        "rows_errored": receipt.rows_errored,
        "worker": made.worker,
        "device": made.device,
        "attempt": made.attempt,
        "seconds": made.finished_at - made.started_at,
    }


def shards_per_cell(shards: int) -> int:
    return max(1, math.ceil(shards / MOST_CELLS))


def strip(names: Sequence[str], states: ShardStates) -> dict[str, object]:
    """The cells as JSON: the first and the last shard of each, and how many are in each state. `names` are sorted."""
    size = shards_per_cell(len(names))
    return {
        "shards_per_cell": size,
        "cells": [_cell(names[first : first + size], states) for first in range(0, len(names), size)],
    }


def _cell(names: Sequence[str], states: ShardStates) -> dict[str, object]:
    return {"first": names[0], "last": names[-1], **Counter(map(states.of, names))}


def _score_charts(status: RunStatus) -> list[dict[str, object]]:
    """A chart for each score column that has a row. `threshold` is the filter's, if the filter is one on that column."""
    return [
        _chart(column, histogram, threshold_of(status.where, column))
        for column, histogram in status.histograms.items()
        if histogram.rows
    ]


def _chart(column: str, histogram: Histogram, threshold: float | None) -> dict[str, object]:
    spread = Distribution(
        column=column, steps_per_unit=histogram.bins_per_unit, rows_by_step=dict(histogram.rows_by_bin)
    )
    width = spread.bin_width()
    return {
        "column": column,
        "rows": spread.rows,
        "bin_width": width,
        "bins": [{"from": edge, "rows": rows} for edge, rows in spread.histogram(width).items()],
        "threshold": threshold,
        "keep_rates": [{"threshold": one, "rows": spread.at_least(one)} for one in spread.thresholds()],
    }
