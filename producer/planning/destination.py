"""Choose the output of a run, and check that it can be used. Reads no input."""

import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Annotated

from fsspec import get_filesystem_class
from pydantic import ByteSize, Field, TypeAdapter, ValidationError

from shardsift.fleet.errors import UsageError
from shardsift.fleet.process.redact import refuse_secrets
from shardsift.fleet.process.wording import is_url, local_path
from shardsift.fleet.run.choices import CRAWLS_DATASET
from shardsift.fleet.storage.hub import place_of
from shardsift.fleet.storage.hub_access import check_hub_answers, hub_token
from shardsift.fleet.storage.open_output import is_on_hub
from shardsift.fleet.storage.output import MANIFEST_PATH
from shardsift.producer.planning.options import RunOptions

_LONGEST_REPO_ID = 96  # characters, the Hub's limit
_REPO_ID = re.compile(r"\w[\w.-]*/\w[\w.-]*")
_LOCAL = {"file", "local"}
_FOR_OUTPUT = _LOCAL | {"hf", "memory", "s3", "s3a", "gs", "gcs", "az", "abfs", "abfss"}
_CRAWLS = f"hf://datasets/{CRAWLS_DATASET}"
_BYTES = TypeAdapter(Annotated[ByteSize, Field(ge=10_000)])
_HUB_FILE_BYTES = 512_000_000  # default on the Hub


@dataclass(frozen=True, kw_only=True)
class Destination:
    output_uri: str
    file_bytes: int | None  # target size of merged data files; None: do not merge
    notes: tuple[str, ...]


def find_destination(options: RunOptions) -> Destination:
    """Find the output: the named one, or for a crawl a repository of the token's user. Raises UsageError if it is unusable.

    Asks the Hub for the token's user only if no output is named, because the Hub limits such requests.
    """
    output_uri = options.output_uri or _default_output(options)
    input_uris = (_CRAWLS,) if options.crawls else options.input_uris
    check_destination(output_uri, input_uris, public=options.public)
    by_default = _HUB_FILE_BYTES if is_on_hub(output_uri) else None
    return Destination(
        output_uri=output_uri,
        file_bytes=file_bytes(options.target_file_size, by_default=by_default),
        notes=place_lines(options.output_uri),
    )


def check_destination(output_uri: str, input_uris: Sequence[str], *, public: bool = False) -> None:
    """Raise UsageError if the output cannot be written or lies in the input, or if the Hub does not answer."""
    check_output_place(output_uri, public=public)
    _check_is_apart(output_uri, input_uris)
    if any(uri.startswith("hf://") for uri in (output_uri, *input_uris)):
        try:
            check_hub_answers()  # fails at once; the Hub's client would retry for half a minute
        except UsageError as error:
            advice = "Check the network; --input, --model and --output may also be folders of this machine."
            raise UsageError(f"{error} {advice}") from error


def check_output_place(uri: str, *, public: bool = False) -> None:
    """Raise UsageError if a URI cannot hold an output, contains a secret, or needs another package."""
    refuse_secrets("--output", uri)
    protocol = uri.split("::")[0].partition("://")[0] if is_url(uri) else "file"
    scheme, colon, rest = uri.partition(":/")
    if protocol == "file" and colon and scheme in _FOR_OUTPUT and not rest.startswith("/"):  # Path drops a slash
        meant = f"{scheme}://{'/' if scheme in _LOCAL else ''}{rest}"
        raise UsageError(
            f"--output {uri} lacks a slash, so it names a folder here. Write {meant}, or ./{uri} for that folder."
        )
    if protocol not in _FOR_OUTPUT:
        raise UsageError(
            f"--output {uri} is of a kind that cannot be written to. Name a folder, a bucket "
            "(s3://, gs://, az://, hf://buckets/…), or hf://datasets/<user>/<name>[@<branch>]."
        )
    if protocol == "file" and uri and (folder := local_path(uri)).is_symlink() and not folder.exists():
        raise UsageError(f"--output {uri} is a link to {folder.readlink()}, which is not there. Create that folder.")
    if is_on_hub(uri):
        place_of(uri)
    elif public and protocol != "hf":
        raise UsageError(f"--public is for an output on the Hub, and {uri} is none. Leave it out.")
    try:
        get_filesystem_class(protocol)
    except ImportError as error:  # fsspec says which package to install
        raise UsageError(f"--output {uri} cannot be used: {error}.") from error


def _check_is_apart(output_uri: str, input_uris: Sequence[str]) -> None:
    """Raise UsageError if a later run would read the output as input. An input folder is read with its subfolders."""
    output = _real_path(output_uri)
    for uri in input_uris:
        source = _real_path(uri.partition("**")[0])
        if not output or not source:
            continue
        if source.is_dir() and output.is_relative_to(source):
            raise UsageError(
                f"The output {output} lies in the input folder. Choose another --output, or name files with --input, "
                f"not the folder {source}."
            )
        if source.parent == output or (output / MANIFEST_PATH).match(str(source)):
            raise UsageError(f"The output {output} would be among the files of --input {uri}. Choose another --output.")


def _real_path(uri: str) -> Path | None:
    return None if is_url(uri) else local_path(uri).resolve()


def file_bytes(text: str | None, *, by_default: int | None) -> int | None:
    """Parse `--target-file-size`. Returns `by_default` if `text` is None, and None if it is `none` (no merging).

    Raises UsageError if it is not a size.
    """
    if text is None or text == "none":
        return by_default if text is None else None
    with suppress(ValidationError):
        size_bytes = int(_BYTES.validate_python(text))
        if not text.strip().isdecimal():
            return size_bytes
    raise UsageError(
        f"--target-file-size takes a number and a unit, like 512MB or 1GB, at least 10kB, or none; it was {text!r}."
    )


def place_lines(output: str) -> tuple[str, ...]:
    """Return a warning if the output is a new folder whose name looks like a dataset on the Hub."""
    if not _REPO_ID.fullmatch(output) or Path(output).parent.exists():
        return ()
    return (f"--output {output} is a folder here. For a dataset on the Hub, write --output hf://datasets/{output}.",)


def _default_output(options: RunOptions) -> str:
    if not options.crawls:
        raise UsageError("Say where to put the rows: --output FOLDER, or --output hf://datasets/<user>/<name>.")
    models = "-".join(PurePosixPath(name).name for name, _ in options.by_column.values())
    return f"hf://datasets/{default_repo_id(_user(), crawls=options.crawls, model=models)}"


def default_repo_id(user: str, *, crawls: Sequence[str], model: str) -> str:
    """Return `<user>/fineweb-<crawl>-<model>`, in characters that the Hub allows, and cut to its limit.

    For several crawls: `<user>/fineweb-<model>`.
    The Hub allows no `--` or `..`, no `.git` at the end, and no `-` or `.` at either end.
    """
    named = crawls if len(crawls) == 1 else ()
    words = "-".join(PurePosixPath(part).name for part in (CRAWLS_DATASET, *named, model))
    name = re.sub(r"(?:[^A-Za-z0-9._]|\.(?=\.))+", "-", words)
    return f"{user}/{name[: _LONGEST_REPO_ID - len(user) - 1].removesuffix('.git').strip('-.')}"


def _user() -> str:
    try:
        token = hub_token()
    except UsageError as error:
        raise UsageError(f"{error} Set another, or name an --output.") from error
    if token is None:
        raise UsageError(
            "There is no --output and no Hugging Face token. Set HF_TOKEN to publish to a private dataset of yours "
            "on the Hub, or name a folder with --output FOLDER."
        )
    return token.user
