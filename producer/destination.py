"""Choose the output of a run: the one that the user names or, for a crawl, a repository of the token's user."""

import hashlib
import re
from dataclasses import replace
from pathlib import PurePosixPath

from fleet.errors import UsageError
from fleet.model import with_revision
from fleet.storage.hub_access import hub_token
from producer.models import options_by_model
from producer.options import RunOptions

_LONGEST_REPO_ID = 96  # characters, the Hub's limit
_DIGEST_DIGITS = 8


def with_output(options: RunOptions) -> RunOptions:
    """The options with an output filled in. Raises UsageError if none can be chosen.

    Asks the Hub once for the token's user, and only if an output has to be chosen, because the Hub limits such requests.
    """
    if options.output_uri:
        return options
    if options.crawl is None:
        raise UsageError("Say where to put the rows: --output FOLDER, or --output hf://datasets/<user>/<name>.")
    repo_id = default_repo_id(_user(), dataset=options.dataset, crawl=options.crawl, model=_models(options))
    return replace(options, output_uri=f"hf://datasets/{repo_id}")


def _models(options: RunOptions) -> str:
    return "-".join(PurePosixPath(with_revision(each.model)[0]).name for each in options_by_model(options).values())


def default_repo_id(user: str, *, dataset: str, crawl: str, model: str) -> str:
    """`<user>/<dataset>-<crawl>-<model>`, in characters that the Hub allows. A long name is shortened and ends in a digest."""
    words = "-".join(PurePosixPath(part).name for part in (dataset, crawl, model))
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
