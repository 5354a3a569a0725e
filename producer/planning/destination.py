"""Choose the output of a run: the one that the user names or, for a crawl, a repository of the token's user."""

import hashlib
import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path, PurePosixPath

from fsspec import get_filesystem_class
from huggingface_hub.errors import HFValidationError
from huggingface_hub.utils._validators import validate_repo_id

from fleet.errors import UsageError
from fleet.run.choices import CRAWLS_DATASET, DEFAULT_MODEL
from fleet.run.model import SEQUENCE_CLASSIFIER, with_revision
from fleet.storage.hub import repo_id_of
from fleet.storage.hub_access import check_hub_answers, hub_token
from producer.planning.options import RunOptions

_LONGEST_REPO_ID = 96  # characters, the Hub's limit
_DIGEST_DIGITS = 8


def with_output(options: RunOptions, models: Iterable[str]) -> RunOptions:
    """The options with an output filled in. Raises UsageError if none can be chosen.

    Asks the Hub once for the token's user, and only if an output has to be chosen, because the Hub limits such requests.
    """
    if options.output_uri:
        return options
    if options.crawl is None:
        raise UsageError("Say where to put the rows: --output FOLDER, or --output hf://datasets/<user>/<name>.")
    named = "-".join(PurePosixPath(with_revision(model)[0]).name for model in models)
    repo_id = default_repo_id(_user(), crawl=options.crawl, model=named)
    return replace(options, output_uri=f"hf://datasets/{repo_id}")


def default_repo_id(user: str, *, crawl: str, model: str) -> str:
    """`<user>/fineweb-<crawl>-<model>`, in characters that the Hub allows. A long name is shortened and ends in a digest."""
    words = "-".join(PurePosixPath(part).name for part in (CRAWLS_DATASET, crawl, model))
    name = _clean(words)
    room = _LONGEST_REPO_ID - len(user) - 1
    if len(name) > room:
        digest = hashlib.sha256(words.encode()).hexdigest()[:_DIGEST_DIGITS]
        name = f"{_clean(name[: room - _DIGEST_DIGITS - 1])}-{digest}"
    return f"{user}/{name}"


def _clean(name: str) -> str:
    """Make a name valid: the Hub allows no `--` or `..`, no `.git` at the end, and no `-` or `.` at either end."""
    allowed = re.sub(r"[^A-Za-z0-9._-]+", "-", name)
    single = re.sub(r"\.{2,}", ".", re.sub(r"-{2,}", "-", allowed))
    return single.removesuffix(".git").strip("-.") or "shardsift"


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


# Check early that the URIs of a run are usable and that the Hub answers.

_INSTALLS = {
    **dict.fromkeys(("s3", "s3a"), "'shardsift[s3]'"),
    **dict.fromkeys(("gs", "gcs"), "gcsfs"),
    **dict.fromkeys(("az", "abfs", "abfss"), "adlfs"),
    **dict.fromkeys(("http", "https"), "aiohttp requests"),
}
_FOR_OUTPUT = {"hf", "file", "local", "memory", "s3", "s3a", "gs", "gcs", "az", "abfs", "abfss"}


def check_places(options: RunOptions) -> None:
    """Raises UsageError for a URL of unknown kind, one that cannot hold an output, or one that needs another package."""
    for uri in options.input_uris:
        check_place("--input", uri)
    check_output_place(options.output_uri)
    if options.public and not options.output_uri.startswith("hf://"):
        raise UsageError(f"--public is for an output on the Hub, and {options.output_uri} is none. Leave it out.")


def check_output_place(uri: str) -> None:
    """Raises UsageError for a URL that cannot hold an output, or needs another package."""
    if (protocol := _protocol(uri)) not in _FOR_OUTPUT:
        raise UsageError(
            f"--output {uri} is of a kind that cannot be written to. Name a folder, a bucket "
            "(s3://, gs://, az://), or hf://datasets/<user>/<name>."
        )
    if protocol == "hf":
        repo_id_of(uri)
    check_place("--output", uri)


def check_hub_has_places(options: RunOptions) -> None:
    """Raises UsageError if the input or the output is on the Hub and the Hub does not answer."""
    places = (*options.input_uris, options.output_uri)
    if options.crawl is not None or any(uri.startswith("hf://") for uri in places):
        _check_hub_answers()


def check_hub_has_model(scorer: str, model: str) -> None:
    """Raises UsageError if the model is on the Hub and the Hub does not answer."""
    is_classifier = scorer == SEQUENCE_CLASSIFIER
    if not is_classifier or Path(model).expanduser().exists() or not _is_repo_id(model):
        return
    try:
        _check_hub_answers()
    except UsageError as error:
        if model == DEFAULT_MODEL:
            raise UsageError(f"The default --model, {DEFAULT_MODEL}, comes from the Hub. {error}") from error
        raise UsageError(f"There is no folder {model!r} here, so the model must come from the Hub. {error}") from error


def _check_hub_answers() -> None:
    try:
        check_hub_answers()
    except UsageError as error:
        raise UsageError(
            f"{error} Check the network; --input, --model and --output may also be folders of this machine."
        ) from error


def check_place(option: str, uri: str) -> None:
    """Raises UsageError for a URL of unknown kind, or one that needs another package."""
    protocol = _protocol(uri)
    try:
        get_filesystem_class(protocol)
    except ImportError as error:
        package = _INSTALLS.get(protocol, "a package for it")
        raise UsageError(
            f"{option} {protocol}:// needs a package that is not installed: pip install {package}."
        ) from error
    except ValueError as error:
        raise UsageError(f"{option} {uri}: {protocol}:// is not a known kind of place.") from error


def _protocol(uri: str) -> str:
    return uri.split("::")[0].partition("://")[0] if "://" in uri else "file"


def _is_repo_id(model: str) -> bool:
    try:
        validate_repo_id(model)
    except HFValidationError:
        return False
    return True
