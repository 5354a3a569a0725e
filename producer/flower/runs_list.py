"""What the Runs page lists: the newest runs with their state, as JSON."""

from dataclasses import asdict

from fleet.errors import NewerVersion
from fleet.ledger import Ledger
from producer.attention import why_a_person
from producer.flower.run_look import summary
from producer.status import Present, RunStatus, run_status
from producer.status.runs_table import present_line

_MOST_RUNS = 50


def runs_list(ledger: Ledger) -> dict[str, object]:
    """Raises redis.RedisError."""
    run_ids, present = ledger.run_ids(), Present.read(ledger.redis)
    return {
        "present": present_line(present),
        "runs_in_all": len(run_ids),
        "runs": [_listed(ledger, run_id, present) for run_id in run_ids[:_MOST_RUNS]],
    }


def _listed(ledger: Ledger, run_id: str, present: Present) -> dict[str, object]:
    try:
        return _row(run_status(ledger, run_id, present=present, most_failures=1))
    except NewerVersion as error:
        return {"run_id": run_id, "error": str(error)}


def _row(status: RunStatus) -> dict[str, object]:
    return {
        "run_id": status.run_id,
        "state": status.word,
        "counts": asdict(status.counts),
        "rows_per_second": round(status.rows_per_second, 1),
        **(said := summary(status)),
        "why": said["headline"] if why_a_person(status) else None,
    }
