"""Open the ledger that a command or a call asks, and find a run in it."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from fleet.errors import UsageError
from fleet.ledger import Ledger
from fleet.ledger.rights import PRODUCER, Role, check_rights
from fleet.settings import Settings
from fleet.spec import RunSpec
from fleet.target import is_place
from producer.local.machine_redis import machine_redis
from producer.target import no_folder_told, refuse_model, refuse_place


@contextmanager
def open_ledger(settings: Settings, *, role: Role = PRODUCER) -> Iterator[tuple[Settings, Ledger]]:
    """Open the fleet's ledger, or the one of this machine's own runs, during the block.

    Raises UsageError if the user in REDIS_URL lacks rights that the role needs.
    """
    with machine_redis(settings, create=False) as found:
        ledger = Ledger.connect(found)
        try:
            check_rights(ledger.redis, role)
            yield found, ledger
        finally:
            ledger.redis.close()


@contextmanager
def open_ledger_of(run_id: str | None, settings: Settings) -> Iterator[tuple[Settings, Ledger, str]]:
    """Open the ledger with a run in it: the newest one if no id is given.

    Raises UsageError if the ledger has no such run, or if the id names a folder.
    """
    if run_id is None:
        with open_ledger(settings) as (found, ledger):
            yield found, ledger, _newest_run(ledger)
        return
    refuse_place(run_id)
    with ExitStack() as stack:
        with no_folder_told(run_id):
            found, ledger = stack.enter_context(open_ledger(settings))
            ledger.spec(run_id)
        yield found, ledger, run_id


def output_of(target: str, settings: Settings) -> tuple[str, str | None]:
    """The place of an output that is named by a path or URI, or by its run's id.

    Also returns the id if the ledger calls that run published. A path or URI needs no Redis.
    """
    if is_place(target):
        refuse_model(target)
        return target, None
    with open_ledger_of(target, settings) as (_, ledger, run_id):
        return ledger.spec(run_id).output_uri, run_id if ledger.publication(run_id) else None


def published_output_of(run_id: str, settings: Settings) -> tuple[str, RunSpec]:
    """The URI of a published run's output, and its spec. Raises UsageError if the ledger does not call it published."""
    with open_ledger_of(run_id, settings) as (_, ledger, _):
        spec = ledger.spec(run_id)
        if ledger.publication(run_id) is None:
            raise UsageError(f"Run {run_id} is not published yet: producer status {run_id}")
        return spec.output_uri, spec


def _newest_run(ledger: Ledger) -> str:
    for run_id in ledger.run_ids():
        return run_id
    raise UsageError("There are no runs yet. Start one with `producer enqueue` or `producer run`.")
