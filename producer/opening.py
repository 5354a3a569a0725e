"""Open the ledger that a command or a call asks, and find a run in it."""

import logging
import shlex
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import ParamSpec, TypeVar

from shardsift.fleet.errors import TransientError, UsageError
from shardsift.fleet.ledger import Ledger
from shardsift.fleet.process.settings import Settings
from shardsift.fleet.process.wording import is_place, is_url, local_path
from shardsift.fleet.run.spec import RunSpec
from shardsift.producer.local.redis import machine_redis

# Errors about an argument that is a run id where a path is expected, or the other way round.


def refuse_place(target: str) -> None:
    """Raises UsageError for a path or URI if a run id is expected. The message names the command that takes a path."""
    if not is_place(target):
        return
    if not is_url(target) and not local_path(target).exists():
        raise UsageError(f"There is no folder {target}, and a run id has no slash. `producer runs` lists the run ids.")
    refuse_model(target)
    kind = "a URI" if is_url(target) else "a folder" if local_path(target).is_dir() else "a file"
    raise UsageError(f"{target} is {kind}. To check it, run: producer verify {_as_argument(target)}")


def refuse_model(target: str) -> None:
    """Raises UsageError for the folder of a model, such as `worker train` writes, if the output of a run is expected."""
    if not is_url(target) and (local_path(target) / "config.json").is_file():
        model = _as_argument(target)
        raise UsageError(f"{target} is a model, not a dataset. To use it: --model {model}")


def _as_argument(place: str) -> str:
    """Add a slash, so that the argument counts as a path even if the folder is removed."""
    return shlex.quote(place if "/" in place or place.startswith((".", "~")) else f"./{place}")


@contextmanager
def open_ledger(settings: Settings) -> Iterator[tuple[Settings, Ledger]]:
    """Open the fleet's ledger, or the one of this machine's own runs, during the block."""
    with machine_redis(settings, create=False) as found:
        ledger = Ledger.connect(found)
        try:
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
    with open_ledger(settings) as (found, ledger):
        ledger.spec(run_id)
        yield found, ledger, run_id


def output_of(target: str, settings: Settings) -> tuple[str, str | None]:
    """The place of an output that is named by a path or URI, or by its run's id.

    Also returns the id if the ledger calls that run published. A path or URI needs no Redis.
    """
    if is_place(target):
        refuse_model(target)
        return target, None
    try:
        with open_ledger_of(target, settings) as (_, ledger, run_id):
            return ledger.spec(run_id).output_uri, run_id if ledger.publication(run_id) else None
    except UsageError as error:
        raise UsageError(f"{target!r} is no folder here, and cannot be looked up as a run: {error}") from error


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


# Ask again after an error that may go away by itself, as the Hub's client does for some of its requests only.

_PAUSES_SECONDS = (1, 2, 4, 8, 8)  # those of huggingface_hub
_LONGEST_PAUSE_SECONDS = 60.0  # that a server may ask for while a person waits for the command
logger = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")


def patient(do: Callable[P, T]) -> Callable[P, T]:
    """Call `do` again after a TransientError, and raise the last one. It must be safe to call twice.

    An error of this machine, such as expired credentials, is raised at once, and so is one with a long time to wait.
    """

    @wraps(do)
    def patiently(*args: P.args, **kwargs: P.kwargs) -> T:
        for pause_seconds in _PAUSES_SECONDS:
            try:
                return do(*args, **kwargs)
            except TransientError as error:
                wait_seconds = max(pause_seconds, error.retry_after_seconds or 0)
                if error.of_machine or wait_seconds > _LONGEST_PAUSE_SECONDS:
                    raise
                logger.warning("%s Trying again in %.0f s.", error, wait_seconds)
            time.sleep(wait_seconds)
        return do(*args, **kwargs)

    return patiently
