"""Choose the output of a run, and check early that its places are usable and that the Hub answers."""

import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path, PurePosixPath

from fsspec import get_filesystem_class

from fleet.errors import UsageError
from fleet.run.choices import CRAWLS_DATASET
from fleet.run.model import SEQUENCE_CLASSIFIER, with_revision
from fleet.storage.hub import repo_id_of
from fleet.storage.hub_access import check_hub_answers, hub_token
from producer.planning.options import RunOptions

_LONGEST_REPO_ID = 96  # characters, the Hub's limit
_FOR_OUTPUT = {"hf", "file", "local", "memory", "s3", "s3a", "gs", "gcs", "az", "abfs", "abfss"}


def with_output(options: RunOptions, models: Iterable[str]) -> RunOptions:
    """The options with an output: the one that the user names or, for a crawl, a repository of the token's user.

    Asks the Hub once for the token's user, and only if an output has to be chosen, because the Hub limits such requests.
    Raises UsageError if none can be chosen.
    """
    if options.output_uri:
        return options
    if options.crawl is None:
        raise UsageError("Say where to put the rows: --output FOLDER, or --output hf://datasets/<user>/<name>.")
    named = "-".join(PurePosixPath(with_revision(model)[0]).name for model in models)
    repo_id = default_repo_id(_user(), crawl=options.crawl, model=named)
    return replace(options, output_uri=f"hf://datasets/{repo_id}")


def default_repo_id(user: str, *, crawl: str, model: str) -> str:
    """`<user>/fineweb-<crawl>-<model>`, in characters that the Hub allows, and cut to its limit.

    The Hub allows no `--` or `..`, no `.git` at the end, and no `-` or `.` at either end.
    """
    words = "-".join(PurePosixPath(part).name for part in (CRAWLS_DATASET, crawl, model))
    name = re.sub(r"(?:[^A-Za-z0-9._]|\.(?=\.))+", "-", words)
    return f"{user}/{name[: _LONGEST_REPO_ID - len(user) - 1].removesuffix('.git').strip('-.')}"


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


def check_place(option: str, uri: str) -> None:
    """Raises UsageError for a URL of unknown kind, or one that needs another package."""
    try:
        get_filesystem_class(_protocol(uri))
    except (ImportError, ValueError) as error:  # fsspec says which package to install
        raise UsageError(f"{option} {uri} cannot be used: {error}.") from error


def check_hub(options: RunOptions) -> None:
    """Raises UsageError if the input or the output is on the Hub and the Hub does not answer.

    The Hub's client itself would try for half a minute.
    """
    if options.crawl is not None or any(uri.startswith("hf://") for uri in (*options.input_uris, options.output_uri)):
        _ask_the_hub()


def check_models(scorer: str, models: Iterable[str]) -> None:
    """Raises UsageError if a model is no folder here and the Hub does not answer."""
    names = [with_revision(model)[0] for model in models] if scorer == SEQUENCE_CLASSIFIER else []
    if on_hub := next(filter(_is_on_hub, names), None):
        _ask_the_hub(f"There is no folder {on_hub!r} here, so the model must come from the Hub. ")


def _ask_the_hub(why: str = "") -> None:
    try:
        check_hub_answers()
    except UsageError as error:
        advice = "Check the network; --input, --model and --output may also be folders of this machine."
        raise UsageError(f"{why}{error} {advice}") from error


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


def _protocol(uri: str) -> str:
    return uri.split("::")[0].partition("://")[0] if "://" in uri else "file"


def _is_on_hub(model: str) -> bool:
    return not model.startswith((".", "/", "~")) and not Path(model).expanduser().exists()
