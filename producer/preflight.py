"""What is checked before anything is asked for: that the places of a run can be opened at all, and that the Hub answers."""

from pathlib import Path

import httpx2
from fsspec import get_filesystem_class
from huggingface_hub import HfApi, get_session
from huggingface_hub.errors import HFValidationError
from huggingface_hub.utils._validators import validate_repo_id

from fleet.errors import UsageError
from fleet.storage.hub import repo_id_of
from producer.options import RunOptions

_ANSWER_SECONDS = 5.0
_INSTALLS = {
    **dict.fromkeys(("s3", "s3a"), "'shardsift[s3]'"),
    **dict.fromkeys(("gs", "gcs"), "gcsfs"),
    **dict.fromkeys(("az", "abfs", "abfss"), "adlfs"),
    **dict.fromkeys(("http", "https"), "aiohttp requests"),
}
_FOR_OUTPUT = {"hf", "file", "local", "memory", "s3", "s3a", "gs", "gcs", "az", "abfs", "abfss"}


def check_places(options: RunOptions) -> None:
    """Raises UsageError for a URL of an unknown kind, one that cannot hold an output, or one that needs a further package."""
    for uri in options.input_uris:
        _check_place("--input", uri)
    if (protocol := _protocol(options.output_uri)) not in _FOR_OUTPUT:
        raise UsageError(
            f"--output {options.output_uri} is of a kind that cannot be written to. Name a folder, a bucket "
            "(s3://, gs://, az://), or hf://datasets/<user>/<name>."
        )
    if protocol == "hf":
        repo_id_of(options.output_uri)
    _check_place("--output", options.output_uri)
    if options.public and not options.output_uri.startswith("hf://"):
        raise UsageError(f"--public is for an output on the Hub, and {options.output_uri} is none. Leave it out.")


def input_needs_hub(options: RunOptions) -> bool:
    return options.crawl is not None or any(uri.startswith("hf://") for uri in options.input_uris)


def run_needs_hub(options: RunOptions) -> bool:
    return input_needs_hub(options) or options.output_uri.startswith("hf://") or _is_on_hub(options.model)


def check_hub_answers() -> None:
    """Raises UsageError if the Hub is out of reach. The client itself would try for half a minute."""
    endpoint = HfApi().endpoint
    try:
        get_session().head(endpoint, timeout=_ANSWER_SECONDS)
    except (httpx2.HTTPError, OSError) as error:
        raise UsageError(
            f"The Hub does not answer at {endpoint} ({error}). Check the network; --input, --model and --output "
            "may also be folders of this machine."
        ) from error


def _check_place(option: str, uri: str) -> None:
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


def _is_on_hub(model: str) -> bool:
    if Path(model).expanduser().is_dir():
        return False
    try:
        validate_repo_id(model)
    except HFValidationError:
        return False
    return True
