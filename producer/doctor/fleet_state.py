"""The checks of what runs on the fleet's Redis: a finalizer, and workers for each run that has shards to score."""

from functools import partial

from fleet.broker import make_app
from fleet.counted import counted
from fleet.doctor.checks import Check, Verdict, ok, warning, wrong
from fleet.ledger import Ledger
from fleet.settings import Settings
from fleet.workers import list_workers
from producer.status import RunStatus, run_status

_ANSWER_SECONDS = 2.0
_NAMED_RUNS = 3
_START_FINALIZER = "Start one: producer finalizer"
_LOOK_AT_REDIS = "Redis answers slowly; see `redis-cli --latency`."


def fleet_checks(settings: Settings) -> list[Check]:
    return [
        Check(name="workers", look=partial(_workers, settings), mend=_LOOK_AT_REDIS, seconds=60, needs=("redis",)),
        Check(name="finalizer", look=partial(_finalizer, settings), mend=_START_FINALIZER, needs=("redis",)),
    ]


def _workers(settings: Settings) -> Verdict:
    ledger = Ledger.connect(settings)
    workers, open_runs = list_workers(ledger.redis), _open_runs(ledger)
    statuses = [run_status(ledger, run_id, workers=workers) for run_id in open_runs]
    unserved = [status for status in statuses if not status.workers]
    if not unserved:
        return ok(f"{counted(len(workers), 'worker')}; every run that has shards to score is served.")
    commands = dict.fromkeys(status.worker_command for status in unserved)
    return warning(
        f"No worker serves {', '.join(map(_with_shards, unserved[:_NAMED_RUNS]))}"
        + (f" and {len(unserved) - _NAMED_RUNS:,} more." if len(unserved) > _NAMED_RUNS else "."),
        f"Start one: {'; '.join(list(commands)[:_NAMED_RUNS])}",
    )


def _open_runs(ledger: Ledger) -> list[str]:
    """The runs that have shards to score, newest first. Cancelled ones are left alone."""
    return [
        run_id
        for run_id in ledger.run_ids()
        if not ledger.is_cancelled(run_id) and ledger.is_enqueued(run_id) and ledger.counts(run_id).open
    ]


def _with_shards(status: RunStatus) -> str:
    return f"{status.run_id} ({counted(status.counts.open, 'open shard')})"


def _finalizer(settings: Settings) -> Verdict:
    """Ask the finalizers by name. They answer in the thread that consumes messages, also while they publish."""
    with make_app("doctor", settings, is_current=False) as app:
        answers = app.control.broadcast(
            "ping", reply=True, timeout=_ANSWER_SECONDS, limit=1, pattern="finalizer@*", matcher="glob"
        )
    if answers:
        return ok(f"{next(iter(answers[0]))} answers.")
    says = f"No finalizer answers within {_ANSWER_SECONDS:g} s: nothing is published, and no lost shard is sent again."
    ledger = Ledger.connect(settings)
    waits = any(_waits(run_status(ledger, run_id, workers=[])) for run_id in ledger.run_ids())
    return wrong(says, _START_FINALIZER) if waits else warning(says, _START_FINALIZER)


def _waits(status: RunStatus) -> bool:
    """Whether a finalizer has something to do for the run."""
    return status.complete and not status.is_over
