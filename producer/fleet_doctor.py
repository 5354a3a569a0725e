"""Check a machine and its fleet for `producer doctor`: Redis, workers, finalizer and the Hub."""

from functools import partial

from shardsift.fleet.checks import (
    OF_PRODUCERS,
    REDIS_MEND,
    Check,
    Verdict,
    hub_check,
    ok,
    redis_checks,
    warning,
    wrong,
)
from shardsift.fleet.ledger import Ledger
from shardsift.fleet.presence.announcements import list_finalizers
from shardsift.fleet.process.settings import Settings
from shardsift.fleet.process.wording import counted, first_of
from shardsift.producer.local.redis import find_redis_server
from shardsift.producer.status import Present, run_statuses
from shardsift.producer.status.advice import why_unable
from shardsift.producer.status.screen import present_line

_NAMED = 3  # runs, workers and commands in a line
_FINALIZER_MEND = "Start one, or restart one that hangs: producer finalizer"


def producer_checks(settings: Settings) -> list[Check]:
    return [*fleet_checks(settings), hub_check()]


def fleet_checks(settings: Settings) -> list[Check]:
    return [
        *redis_checks(settings, OF_PRODUCERS, otherwise=_own_server),
        Check(name="workers", run=partial(_workers, settings), mend=REDIS_MEND, needs=("redis rights",)),
        Check(name="finalizer", run=partial(_finalizer, settings), mend=REDIS_MEND, needs=("redis rights",)),
    ]


def _own_server() -> Verdict:
    return ok(f"REDIS_URL is not set: `producer run` starts {find_redis_server()}. A fleet needs REDIS_URL.")


def _workers(settings: Settings) -> Verdict:
    ledger = Ledger.connect(settings)
    present = Present.read(ledger.redis)
    unserved = [status for status in run_statuses(ledger, present) if status.is_unserved]
    if unserved:
        commands = list(dict.fromkeys(status.worker_command for status in unserved))
        runs = [f"{status.run_id} ({counted(status.counts.open, 'open shard')})" for status in unserved]
        mend = [*why_unable(unserved[0]), f"Start one: {'; '.join(commands[:_NAMED])}"]
        return warning(f"No worker serves {first_of(runs, _NAMED)}.", " ".join(mend))
    return ok(f"{present_line(present)}; every run that has shards to score is served.")


def _finalizer(settings: Settings) -> Verdict:
    ledger = Ledger.connect(settings)
    of_all_runs = [finalizer.name for finalizer in list_finalizers(ledger.redis) if finalizer.only_run is None]
    if of_all_runs:
        return ok(f"{counted(len(of_all_runs), 'finalizer')}: {first_of(of_all_runs, _NAMED)}.")
    says = "No finalizer is seen: nothing is published, and no lost message is sent again."
    is_needed = any(status.lacks_finalizer for status in run_statuses(ledger, Present()))
    return wrong(says, _FINALIZER_MEND) if is_needed else warning(says, _FINALIZER_MEND)
