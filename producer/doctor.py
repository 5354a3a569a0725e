"""Check a machine and its fleet for `producer doctor`, cheap checks first: disks, Redis, the Hub, places, workers, finalizer."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from uuid import uuid4

from fsspec.core import url_to_fs
from fsspec.implementations.local import LocalFileSystem
from huggingface_hub import HfApi
from huggingface_hub.errors import RepositoryNotFoundError

from fleet.doctor.checks import Check, Verdict, ok, warning, wrong
from fleet.doctor.redis_rights import PRODUCER
from fleet.doctor.services import disk_checks, hub_checks, redis_checks
from fleet.errors import UsageError
from fleet.ledger import Ledger
from fleet.presence.announcements import list_finalizers
from fleet.process.settings import Settings
from fleet.process.wording import counted, first_of
from fleet.storage.errors import translated
from fleet.storage.files import Files
from fleet.storage.hub import repo_id_of
from producer.local.redis import find_redis_server
from producer.planning.destination import check_output_place, check_place
from producer.planning.inputs import first_of_input
from producer.planning.plan import refuse_secrets, schema_of
from producer.status import Present, RunStatus, run_status
from producer.status.screen import present_line

_HUB = "hf://"
_HUB_DATASET = "hf://datasets/"


def producer_checks(
    settings: Settings, *, input_uris: Sequence[str] = (), output_uri: str | None = None
) -> list[Check]:
    """The checks for a run with these places, or for any run if none is named."""
    places = [*input_uris, *([output_uri] if output_uri else [])]
    is_hub_needed = any(uri.startswith(_HUB) for uri in places)
    output_repo = output_uri.removeprefix(_HUB_DATASET) if output_uri and output_uri.startswith(_HUB) else None
    return [
        *disk_checks(settings),
        *_redis_checks(settings),
        *hub_checks(is_needed=is_hub_needed, output_repo=output_repo),
        *(input_check(uri) for uri in input_uris),
        *([output_check(output_uri)] if output_uri else []),
    ]


def _redis_checks(settings: Settings) -> list[Check]:
    if settings.redis_url is None:
        return [Check(name="redis", look=_own_server, mend="Install one: pip install 'shardsift[local]'.")]
    return [*redis_checks(settings, PRODUCER), *fleet_checks(settings)]


def _own_server() -> Verdict:
    return ok(f"REDIS_URL is not set: `producer run` starts {find_redis_server()}. A fleet needs REDIS_URL.")


# The checks of what runs on the fleet's Redis: a finalizer, and workers for each run that has shards to score.

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
    statuses = _statuses(ledger, present)
    unserved = [status for status in statuses if status.complete and _needs_workers(status) and not _is_served(status)]
    if unserved:
        commands = list(dict.fromkeys(status.worker_command for status in unserved))
        return warning(
            f"No worker serves {_named([_with_shards(status) for status in unserved])}.",
            f"Start one: {'; '.join(commands[:_NAMED_RUNS])}",
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
    is_needed = any(status.complete and not status.is_over for status in _statuses(ledger, Present()))
    return wrong(says, _START_FINALIZER) if is_needed else warning(says, _START_FINALIZER)


def _statuses(ledger: Ledger, present: Present) -> list[RunStatus]:
    """All runs that are not cancelled, newest first."""
    statuses = [run_status(ledger, run_id, present=present) for run_id in ledger.run_ids()]
    return [status for status in statuses if not status.cancelled]


def _with_shards(status: RunStatus) -> str:
    return f"{status.run_id} ({counted(status.counts.open, 'open shard')})"


def _named(runs: list[str]) -> str:
    return first_of(runs, _NAMED_RUNS)


# The checks of a run's input and output: they can be read and written from this machine.

_LISTING_SECONDS = 60.0  # of a folder with many files, or a dataset
_WRITING_SECONDS = 30.0
_INPUT_MEND = "Check the path, its permissions and the credentials of its storage."
_OUTPUT_MEND = "Choose an --output that can be written."


def input_check(uri: str) -> Check:
    """An input is listed, and the first file's columns are read."""
    needs = ("hub",) if uri.startswith("hf://") else ()
    return Check(name="input", look=lambda: _input(uri), mend=_INPUT_MEND, seconds=_LISTING_SECONDS, needs=needs)


def output_check(uri: str) -> Check:
    """A file is written to an output in a folder or bucket and removed; the Hub is asked."""
    is_on_hub = uri.startswith("hf://")
    return Check(
        name="output",
        look=lambda: _output_on_hub(uri) if is_on_hub else _output(uri),
        mend=_OUTPUT_MEND,
        seconds=_WRITING_SECONDS,
        needs=("hub", "hub token") if is_on_hub else (),
    )


def _input(uri: str) -> Verdict:
    refuse_secrets("--input", uri)
    check_place("--input", uri)
    first, files = first_of_input(uri)
    try:
        columns = len(schema_of(first))
    except UsageError as error:
        return wrong(str(error), _INPUT_MEND)
    return ok(f"{uri} has {counted(files, 'file')}; the first one can be read and has {counted(columns, 'column')}.")


def _output(uri: str) -> Verdict:
    refuse_secrets("--output", uri)
    check_output_place(uri)
    root = _existing_root(uri)
    path = f".shardsift-doctor-{uuid4().hex}"
    files = Files(root)
    with translated(f"Writing to {uri}"):
        try:
            files.write(path, b"", aside=f"{path}-aside")
        finally:
            files.remove(path)
            files.remove(f"{path}-aside")
    return ok(f"A file was written to {root} and removed.")


def _existing_root(uri: str) -> str:
    """Of a local folder that does not exist yet, the nearest parent that does, so that no folder is left behind."""
    filesystem, root = url_to_fs(uri)
    if not isinstance(filesystem, LocalFileSystem):
        return uri
    folder = Path(root).absolute()
    return str(next(place for place in (folder, *folder.parents) if place.exists()))


def _output_on_hub(uri: str) -> Verdict:
    refuse_secrets("--output", uri)
    check_output_place(uri)
    api, repo_id = HfApi(), repo_id_of(uri)
    with translated(f"Looking at {uri}"):
        try:
            api.repo_info(repo_id, repo_type="dataset")
        except RepositoryNotFoundError:
            return ok(f"{uri} does not exist yet, or is not shown to this token; the run creates it.")
        api.auth_check(repo_id, repo_type="dataset", write=True)
    return ok(f"{uri} exists, and the Hub lets this token write to it.")
