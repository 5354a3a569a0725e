"""The light half of the scorer `sequence-classifier`: find a model and pin its revision, without loading it.

Both producers and workers use it, so that they name the queue of a model by the same revision.
"""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from huggingface_hub import constants, hf_hub_download, try_to_load_from_cache
from huggingface_hub.errors import (
    GatedRepoError,
    HFValidationError,
    LocalEntryNotFoundError,
    RemoteEntryNotFoundError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)

from shardsift.fleet.errors import ShardError, ShardsiftError, UsageError
from shardsift.fleet.process.wording import local_path
from shardsift.fleet.run.model import SEQUENCE_CLASSIFIER, Model, folder_revision, is_folder_revision
from shardsift.fleet.run.model_config import (
    function_of,
    has_two_heads,
    labels_of,
    most_tokens_in,
    read_object,
    threshold_in,
)
from shardsift.fleet.scorers.kinds import ScorerKind, added_kinds
from shardsift.fleet.storage.errors import did_you_mean, translated
from shardsift.fleet.storage.hub_access import check_hub_answers

_CONFIG = "config.json"
_SHOWN = 19  # characters of a folder's revision in a message: `sha256-` and twelve digits


def resolve_classifier(name: str, revision: str | None) -> Model:
    """Find a sequence classifier by name, and pin its revision. Raises UsageError if there is none."""
    if local_path(name).is_file():
        raise UsageError(_about_file(name))
    if folder := _folder_of(name):
        return _from_folder(folder, revision)
    file = _hub_config(name, revision)
    return _model(name, file.parent.name, read_object(file, name))


def pinned_model(name: str, revision: str | None) -> tuple[str, str | None]:
    """Return a model folder's full path and None, or a Hub model's name and commit.

    The model need not be a classifier. Raises UsageError if there is no such folder or Hub model.
    """
    folder = _folder_of(name)
    return (str(folder), None) if folder else (name, _hub_config(name, revision).parent.name)


def _folder_of(name: str) -> Path | None:
    folder = local_path(name)
    if folder.is_dir():
        if not (folder / _CONFIG).is_file():
            raise UsageError(
                f"The folder {folder} has no config.json, so it is not a model. Name a model folder, or a model on the Hub."
            )
        return folder.resolve()
    if folder.is_file() or name.startswith((".", "/", "~")):  # never a repository
        hint = did_you_mean(name, having=_CONFIG)
        raise UsageError(
            f"There is no model folder {name}. Name a folder that holds a model, or a model on the Hub.{hint}"
        )
    return None


def _about_file(file: str) -> str:
    installed = f"Installed: {', '.join(kinds)}." if (kinds := added_kinds()) else "None is installed."
    return (
        f"The model {file} is a file. --model takes a name on the Hub or a folder. For a file, also name the kind of scorer "
        f"that reads it: --scorer KIND. {installed}"
    )


def configured_threshold(model: Model) -> float | None:
    """Return the lowest score to keep, from the model's config.json. None unless `worker train` wrote it there."""
    return threshold_in(_config_of(model))


def check_max_tokens(model: Model, max_tokens: int | None) -> None:
    """Raise UsageError if `max_tokens` is more than the model's positions. Workers also check the tokenizer's limit."""
    most = most_tokens_in(_config_of(model)) if max_tokens and model.scorer == SEQUENCE_CLASSIFIER else None
    if max_tokens and most and max_tokens > most:
        raise UsageError(f"The model takes at most {most} tokens, not {max_tokens}. Choose another --max-tokens.")


def _config_of(model: Model) -> dict[str, Any]:
    """Read the model's config.json. Empty if it cannot be read, because models of other kinds may have none."""
    file = Path(model.name, _CONFIG)
    if model.scorer == SEQUENCE_CLASSIFIER and not model.is_folder:
        file = _hub_config(model.name, model.revision)
    try:
        return read_object(file, model.name)
    except UsageError:
        return {}


@contextmanager
def unchanged_folder(model: Model) -> Iterator[None]:
    """Check after a block that a model folder's files still match its revision. Raises ShardsiftError if not.

    Use it around code that reads the folder. Its error replaces an error of that code, which the changed files may have
    caused. Does nothing for a Hub model, because a commit does not change.
    """
    try:
        yield
    finally:
        if model.is_folder:
            _unchanged_revision(Path(model.name), model.revision)


def _unchanged_revision(folder: Path, expected: str | None) -> str:
    found = revision_of_folder(folder)
    if expected and expected != found:
        raise ShardsiftError(
            f"The files of the model folder {folder} have changed: the revision was {expected[:_SHOWN]} and is now "
            f"{found[:_SHOWN]}. A run must not mix scores of both. Restore the files, or enqueue again."
        )
    return found


def revision_of_folder(folder: Path) -> str:
    """Return a model folder's revision: a digest of its files, without subfolders and hidden files.

    Raises UsageError if a file cannot be read, or if an index of weights names a file outside the folder.
    """
    total = hashlib.sha256()
    for path in sorted(path for path in folder.iterdir() if path.is_file() and not path.name.startswith(".")):
        if path.name.endswith(".index.json"):
            _check_index(path)
        total.update(f"{path.name} {_file_digest(path)}\n".encode())
    return folder_revision(total.hexdigest())


def _check_index(index: Path) -> None:
    """Raise UsageError if an index of weights names a file that the folder's digest does not cover."""
    weights = read_object(index, str(index.parent)).get("weight_map")
    for file in weights.values() if isinstance(weights, dict) else ():
        if Path(str(file)).name != file or file.startswith("."):
            raise UsageError(
                f"{index} names the weights {file!r}, which are not a file of that folder. Put them into it, and name them there."
            )


def _file_digest(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise UsageError(f"The model's file {path} cannot be read: {error.strerror}.") from error


def _from_folder(folder: Path, revision: str | None) -> Model:
    if revision and not is_folder_revision(revision):
        raise UsageError(f"A folder has no revisions: leave out @{revision} for the model {folder}.")
    config = read_object(folder / _CONFIG, str(folder))
    return _model(str(folder), _unchanged_revision(folder, revision), config)


def _hub_config(name: str, revision: str | None) -> Path:
    """Download config.json. Returns its path in the cache, in a folder named after the commit.

    If the Hub cannot be reached, takes the cached file, whose commit may be old. Raises UsageError if no such file is
    cached either, or if there is no such model. Raises TransientError if the Hub fails for now.
    """
    shown = f"the model {name}" + (f" at revision {revision}" if revision else "")
    try:
        with translated(f"Looking for {shown}"):
            return _downloaded_config(name, revision, shown)
    except ShardError as error:
        raise UsageError(str(error)) from error


def _downloaded_config(name: str, revision: str | None, shown: str) -> Path:
    try:
        if not (constants.HF_HUB_OFFLINE or isinstance(try_to_load_from_cache(name, _CONFIG, revision=revision), str)):
            check_hub_answers()  # fails within seconds; without a network, the client would take 23 s
        return Path(hf_hub_download(name, _CONFIG, revision=revision))
    except UsageError as error:
        raise UsageError(f"{error} {_no_folder(name)}") from error
    except RevisionNotFoundError as error:
        raise UsageError(
            f"The model {name} has no revision {revision!r}. Name a branch, tag or commit after the @."
        ) from error
    except GatedRepoError as error:
        raise UsageError(f"The model {name} is gated: accept its terms on the Hub and set HF_TOKEN.") from error
    except (RepositoryNotFoundError, HFValidationError) as error:
        raise UsageError(
            f"There is no model {name!r}: neither a folder here nor a repository that the Hub shows to this HF_TOKEN."
        ) from error
    except RemoteEntryNotFoundError as error:
        raise UsageError(f"The repository {name} has no config.json, so it is not a transformers model.") from error
    except LocalEntryNotFoundError as error:
        if constants.HF_HUB_OFFLINE:
            raise UsageError(
                f"HF_HUB_OFFLINE is set, and this machine has no copy of {shown} in its cache. {_no_folder(name)}"
            ) from error
        raise


def _no_folder(name: str) -> str:
    return f"There is no folder {name!r} here either."


def _model(name: str, revision: str, config: dict[str, Any]) -> Model:
    if has_two_heads(config):
        return Model(name=name, revision=revision, labels=("LABEL_0",))
    labels = labels_of(config, name)
    return Model(name=name, revision=revision, labels=labels, function=function_of(config, outputs=len(labels)))


KIND = ScorerKind(
    resolve=resolve_classifier,
    loader="shardsift.worker.service.serving:load_served_model",
    requires=("torch", "transformers"),
    install="shardsift[worker]",
)
