"""Find the run or the output that an argument names, in the ledger of the fleet or of this machine."""

import shlex
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from shardsift.fleet.errors import UsageError
from shardsift.fleet.ledger import Ledger
from shardsift.fleet.process.settings import Settings
from shardsift.fleet.process.wording import first_of, is_place, is_url, local_path
from shardsift.producer.local.redis import machine_redis
from shardsift.producer.status import RunStatus, run_statuses

_NAMED_RUNS = 10
# The runs to which each command applies.
_CAN: dict[str, Callable[[RunStatus], object]] = {
    "cancel": lambda status: not status.is_over,
    "change": lambda status: not status.is_over,
    "pause": lambda status: not status.is_over and status.paused is None,
    "resume": lambda status: status.is_paused,
    "retry": lambda status: status.counts.failed or status.cancelled,
    "publish": lambda status: (
        status.counts.failed and not (status.counts.open or status.is_published or status.cancelled)
    ),
    "refilter": lambda status: status.is_published,
    "show": lambda status: status.counts.done,
}

# Errors about a path where a run id is expected, or the other way round.


def refuse_place(target: str) -> None:
    """Raise UsageError if `target` is a path, because a run id is expected. The message says how to use the path."""
    if not is_place(target):
        return
    if not is_url(target) and not local_path(target).exists():
        raise UsageError(f"There is no folder {target}, and a run id has no slash. `producer runs` lists the run ids.")
    refuse_model(target)
    kind = "a URI" if is_url(target) else "a folder" if local_path(target).is_dir() else "a file"
    raise UsageError(f"{target} is {kind}. To check it, run: producer verify {_as_argument(target)}")


def refuse_model(target: str) -> None:
    """Raise UsageError if `target` is a model's folder, such as `worker train` writes, because an output is expected."""
    if not is_url(target) and (local_path(target) / "config.json").is_file():
        model = _as_argument(target)
        raise UsageError(f"{target} is a model, not a dataset. To use it: --model {model}")


def _as_argument(place: str) -> str:
    """Quote a path for the shell. Adds `./`, so that it counts as a path even after the folder is removed."""
    return shlex.quote(place if "/" in place or place.startswith((".", "~")) else f"./{place}")


@contextmanager
def open_ledger(settings: Settings) -> Iterator[tuple[Settings, Ledger]]:
    """Open the fleet's ledger, or this machine's own, during the block. The yielded settings have the URL of its Redis."""
    with machine_redis(settings, create=False) as found:
        ledger = Ledger.connect(found)
        try:
            yield found, ledger
        finally:
            ledger.redis.close()


@contextmanager
def open_ledger_of(
    run_id: str | None, settings: Settings, *, to: str | None = None
) -> Iterator[tuple[Settings, Ledger, str]]:
    """Open the ledger that has a run, during the block. `run_id` may be a unique beginning of the id.

    Without `run_id`, takes the only run that the action `to` applies to. Without both, takes the newest run that is under
    way, otherwise the newest run. Raises UsageError if there is no such run, or if `run_id` is a path.
    """
    if not isinstance(run_id, str | None):  # from Python
        raise UsageError(f"run_id={run_id!r} is wrong: it is the id of a run as a text, or its unique beginning.")
    if run_id == "":
        raise UsageError("The run id is empty. `producer runs` lists the run ids.")
    if run_id and "/" in run_id:
        refuse_place(run_id)
    with open_ledger(settings) as (found, ledger):
        if run_id:
            run_id = _that_begins(run_id, ledger)
        else:
            statuses = run_statuses(ledger)
            run_id = _only(to, statuses) if to else _shown(statuses)
        ledger.spec(run_id)
        yield found, ledger, run_id


def _that_begins(beginning: str, ledger: Ledger) -> str:
    runs = ledger.run_ids()
    found = [beginning] if beginning in runs else [run_id for run_id in runs if run_id.startswith(beginning)]
    if len(found) > 1:
        raise UsageError(f"Several runs begin with {beginning}: {first_of(found, _NAMED_RUNS)}. Write more of the id.")
    if not found:
        refuse_place(beginning)
    return found[0] if found else beginning


def _only(to: str, statuses: Iterable[RunStatus]) -> str:
    """Return the only run that the action `to` applies to. If it applies to several, return the only one under way.

    Raises UsageError if there is no such run, or more than one.
    """
    fitting = [status for status in statuses if _CAN[to](status)]
    found = [status for status in fitting if status.is_under_way] or fitting
    if len(found) == 1:
        return found[0].run_id
    if not found:
        raise UsageError(f"There is no run to {to}. `producer runs` lists all runs.")
    listed = [f"{status.run_id} ({status.word})" for status in found]
    raise UsageError(f"Name the run to {to}: {first_of(listed, _NAMED_RUNS)}.")


def _shown(statuses: Iterable[RunStatus]) -> str:
    newest = None
    for status in statuses:
        if status.is_under_way:
            return status.run_id
        newest = newest or status.run_id
    if newest is None:
        raise UsageError("There are no runs yet. Start one with `producer enqueue` or `producer run`.")
    return newest


def output_of(target: str, settings: Settings) -> tuple[str, str | None]:
    """Find an output by its path or URI, or by the id of its run. A path or URI needs no Redis.

    Returns the URI of the output, and the run's id. The id is None if `target` is a path or URI, or if the run is not
    published according to the ledger.
    """
    if is_place(target):
        refuse_model(target)
        return target, None
    with _looked_up(target), open_ledger_of(target, settings) as (_, ledger, run_id):
        return ledger.spec(run_id).output_uri, run_id if ledger.state(run_id).publication else None


@contextmanager
def _looked_up(target: str | None) -> Iterator[None]:
    """Add to a UsageError of the block that `target` is no folder here, because the user may have meant a folder.

    Raises the error unchanged if `target` is None.
    """
    try:
        yield
    except UsageError as error:
        if target is None:
            raise
        raise UsageError(f"{target!r} is no folder here, and cannot be looked up as a run: {error}") from error


def published_output_of(run_id: str | None, settings: Settings) -> tuple[str, tuple[str, ...]]:
    """Return the output URI of a published run, and the input URIs of all runs that are published there.

    Without `run_id`, takes the only published run. Raises UsageError if the run is not published according to the ledger.
    """
    with _looked_up(run_id), open_ledger_of(run_id, settings, to="refilter") as (_, ledger, found):
        output_uri, is_published = ledger.spec(found).output_uri, ledger.state(found).publication is not None
        published = [run_id for run_id in ledger.run_ids() if ledger.state(run_id).publication]
        specs = [spec for spec in map(ledger.spec, published) if spec.output_uri == output_uri]
    if not is_published:
        raise UsageError(f"Run {found} is not published yet: producer status {found}")
    return output_uri, tuple(dict.fromkeys(uri for spec in specs for uri in spec.input_uris))
