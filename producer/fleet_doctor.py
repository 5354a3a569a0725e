"""Check a machine and its fleet for `producer doctor`: Redis, workers, finalizer, the Hub, and an output."""

from functools import partial
from uuid import uuid4

from huggingface_hub import HfApi
from huggingface_hub.errors import BucketNotFoundError, RepositoryNotFoundError

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
from shardsift.fleet.process.redact import refuse_secrets
from shardsift.fleet.process.settings import Settings
from shardsift.fleet.process.wording import counted, first_of, is_url, local_path
from shardsift.fleet.storage.errors import translated
from shardsift.fleet.storage.files import Files
from shardsift.fleet.storage.hub import place_of
from shardsift.fleet.storage.open_output import is_on_hub
from shardsift.producer.local.redis import find_redis_server
from shardsift.producer.planning.destination import check_output_place
from shardsift.producer.status import Present, RunStatus, run_status
from shardsift.producer.status.advice import why_unable
from shardsift.producer.status.screen import present_line

_NAMED = 3  # runs, workers and commands in a line
_FINALIZER_MEND = "Start one, or restart one that hangs: producer finalizer"
_OUTPUT_MEND = "Choose an --output that can be written."


def producer_checks(settings: Settings, *, output_uri: str | None = None) -> list[Check]:
    """Return all checks of `producer doctor`, including one of the output if it is named."""
    checks = [*fleet_checks(settings), hub_check()]
    if output_uri:
        checks.append(Check(name="output", run=partial(_output, output_uri), mend=_OUTPUT_MEND))
    return checks


def fleet_checks(settings: Settings) -> list[Check]:
    """Return the checks of Redis, of workers for each run with shards to score, and of a finalizer."""
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
    unserved = [status for status in _statuses(ledger, present) if status.is_unserved]
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
    is_needed = any(status.lacks_finalizer for status in _statuses(ledger, Present()))
    return wrong(says, _FINALIZER_MEND) if is_needed else warning(says, _FINALIZER_MEND)


def _statuses(ledger: Ledger, present: Present) -> list[RunStatus]:
    return [run_status(ledger, run_id, present=present) for run_id in ledger.run_ids()]


def _output(uri: str) -> Verdict:
    """Write a file to a folder or bucket and remove it, or ask the Hub whether this token may write."""
    refuse_secrets("--output", uri)
    check_output_place(uri)
    with translated(f"Writing to {uri}"):
        if is_on_hub(uri):
            return _output_on_hub(uri)
        files, path = Files(_existing_root(uri)), f".shardsift-doctor-{uuid4().hex}"
        try:
            files.write(path, b"", aside=f"{path}-aside")
        except FileNotFoundError as error:
            if isinstance(error.__cause__, BucketNotFoundError):
                return _made_by_the_run(uri)
            raise
        finally:
            files.remove(path)
            files.remove(f"{path}-aside")
    return ok(f"{uri} can be written.")


def _existing_root(uri: str) -> str:
    """Return the nearest existing folder at or above a local path, so that the test write creates no folders.

    A URL is returned unchanged.
    """
    if is_url(uri):
        return uri
    folder = local_path(uri)
    return str(next(place for place in (folder, *folder.parents) if place.exists()))


def _made_by_the_run(uri: str) -> Verdict:
    return ok(f"{uri} does not exist yet, or is not shown to this token; the run creates it.")


def _output_on_hub(uri: str) -> Verdict:
    api, repo_id = HfApi(), place_of(uri)[0]
    try:
        api.repo_info(repo_id, repo_type="dataset")
    except RepositoryNotFoundError:
        return _made_by_the_run(uri)
    api.auth_check(repo_id, repo_type="dataset", write=True)
    return ok(f"{uri} exists, and the Hub lets this token write to it.")
