"""The checks of what runs on the fleet's Redis: a finalizer, and workers for each run that has shards to score."""

from functools import partial

from fleet.counted import counted, first_of
from fleet.doctor.checks import Check, Verdict, ok, warning, wrong
from fleet.errors import NewerVersion
from fleet.finalizers import list_finalizers
from fleet.ledger import Ledger
from fleet.settings import Settings
from producer.status import Present, RunStatus, run_status
from producer.status.runs_table import present_line

_NAMED_RUNS = 3
_NEEDS = ("redis", "redis rights")
_START_FINALIZER = "Start one: producer finalizer"
_LOOK_AT_REDIS = "Redis answers slowly; see `redis-cli --latency`."


def fleet_checks(settings: Settings) -> list[Check]:
    return [
        Check(name="workers", look=partial(_workers, settings), mend=_LOOK_AT_REDIS, seconds=60, needs=_NEEDS),
        Check(name="finalizer", look=partial(_finalizer, settings), mend=_START_FINALIZER, needs=_NEEDS),
    ]


def _workers(settings: Settings) -> Verdict:
    ledger = Ledger.connect(settings)
    present = Present.read(ledger.redis)
    statuses, unreadable = _statuses(ledger, present)
    unserved = [status for status in statuses if status.complete and _needs_workers(status) and not _is_served(status)]
    if unserved:
        commands = list(dict.fromkeys(status.worker_command for status in unserved))
        return warning(
            f"No worker serves {_named([_with_shards(status) for status in unserved])}.",
            f"Start one: {'; '.join(commands[:_NAMED_RUNS])}",
        )
    if unreadable:
        return warning(
            f"Another version of shardsift enqueued {_named(unreadable)}.",
            "Use that version for them, or update this machine.",
        )
    return ok(f"{present_line(present)}; every run that has shards to score is served.")


def _needs_workers(status: RunStatus) -> bool:
    return bool(status.counts.open) and not status.is_paused


def _is_served(status: RunStatus) -> bool:
    return bool(status.workers or status.machines)


def _finalizer(settings: Settings) -> Verdict:
    ledger = Ledger.connect(settings)
    of_all_runs = [finalizer.name for finalizer in list_finalizers(ledger.redis) if finalizer.only_run is None]
    if of_all_runs:
        return ok(f"{counted(len(of_all_runs), 'finalizer')}: {_named(of_all_runs)}.")
    says = "No finalizer is running: nothing is published, and no lost shard is sent again."
    statuses, _ = _statuses(ledger, Present())
    is_needed = any(status.complete and not status.is_over for status in statuses)
    return wrong(says, _START_FINALIZER) if is_needed else warning(says, _START_FINALIZER)


def _statuses(ledger: Ledger, present: Present) -> tuple[list[RunStatus], list[str]]:
    """Of all runs that are not cancelled, newest first. Also returns the ids of those that cannot be read."""
    statuses, unreadable = [], []
    for run_id in ledger.run_ids():
        try:
            statuses.append(run_status(ledger, run_id, present=present))
        except NewerVersion:
            unreadable.append(run_id)
    return [status for status in statuses if not status.cancelled], unreadable


def _with_shards(status: RunStatus) -> str:
    return f"{status.run_id} ({counted(status.counts.open, 'open shard')})"


def _named(runs: list[str]) -> str:
    return first_of(runs, _NAMED_RUNS)
