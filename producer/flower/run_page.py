"""Draw the Runs page's JSON: the list of runs, and of one run its status, as `producer status` has it, scores and rows."""

from dataclasses import asdict, replace

from fleet.errors import UsageError
from fleet.inputs.formats import has_footer
from fleet.ledger import Ledger
from fleet.run.spec import Shard
from fleet.storage.identity import identity_now
from producer.scores.distribution import score_bins, threshold_of
from producer.scores.near import NearRow, rows_near
from producer.status import Present, RunStatus, run_status
from producer.status.advice import level, verdict, what_next, why_a_person
from producer.status.screen import present_line, status_lines
from producer.status.watch import progress_line

_MOST_RUNS = 50
_MOST_FAILURES = 20  # with their tracebacks
_MOST_LISTED = 1000  # workers, machines and running shards
_ROWS = 9
_MOST_ROWS = 5000  # of the beginning of a shard: a bound on what is read of the input, whatever its size
_MOST_CHARACTERS = 500


def run_json(ledger: Ledger, run_id: str) -> dict[str, object]:
    """One run. Raises UsageError for an unknown run, and redis.RedisError."""
    status = run_status(ledger, run_id, most_failures=_MOST_FAILURES)
    return {
        **_bounded(status),
        **summary(status),
        "next": _what_next(status),
        "lines": [line.split(maxsplit=1) for line in status_lines(status) if not line.startswith(" ")],
        "scores": _score_charts(status),
    }


def rows_json(ledger: Ledger, run_id: str) -> dict[str, object]:
    """Some rows from the beginning of a random finished shard, near the threshold if the filter is one.

    Raises UsageError if no shard is done, ShardError for files that cannot be read, TransientError for the network.
    """
    spec, receipts = ledger.spec(run_id), ledger.some_receipts(run_id, 1)
    if not receipts:
        raise UsageError(f"No shard of {run_id} is done yet.")
    scoring = spec.scorings[0]
    near = threshold_of(spec.where, scoring.score_column)
    shards = {shard.name: _as_it_is_now(shard) for shard in ledger.shards(run_id, [receipts[0].shard])}
    rows = rows_near(
        spec.output_uri, receipts, spec, scoring, near=near, count=_ROWS, source=shards, most_rows=_MOST_ROWS
    )
    return {"shard": receipts[0].shard, "threshold": near, "rows": [_row(row) for row in rows]}


def _as_it_is_now(shard: Shard) -> Shard:
    """To identify a file of lines, all of it would have to be read."""
    return replace(shard, identity=identity_now(shard.uri)[0]) if has_footer(shard.uri) else shard


def _row(row: NearRow) -> dict[str, object]:
    return asdict(row) | {"score": round(row.score, 3), "text": " ".join((row.text or "").split())[:_MOST_CHARACTERS]}


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
    """Summarise a run for the list of runs and the head of its page."""
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


def _score_charts(status: RunStatus) -> list[dict[str, object]]:
    """A chart for each score column that has a row. `threshold` is the filter's, if the filter is one on that column."""
    return [
        {
            "column": column,
            "rows": histogram.rows,
            "threshold": threshold_of(status.where, column),
            "bins": [asdict(one) for one in score_bins(histogram)],
        }
        for column, histogram in status.histograms.items()
        if histogram.rows
    ]
