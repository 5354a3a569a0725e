"""The checks of a run's input and output: they can be read and written from this machine."""

from pathlib import Path
from uuid import uuid4

from fsspec.core import url_to_fs
from fsspec.implementations.local import LocalFileSystem
from huggingface_hub import HfApi
from huggingface_hub.errors import RepositoryNotFoundError

from fleet.counted import counted
from fleet.doctor.checks import Check, Verdict, ok, wrong
from fleet.errors import UsageError
from fleet.storage.errors import translated
from fleet.storage.files import Files
from fleet.storage.hub import repo_id_of
from producer.plan import refuse_secrets, schema_of
from producer.preflight import check_output_place, check_place
from producer.sources.inputs import first_of_input

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
