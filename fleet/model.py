"""Find a model and pin its revision, without loading it: the light side must not need torch.

Both sides ask here, so that the queue a run is sent to and the queue a worker serves are named by the same revision.
"""

import hashlib
import json
from pathlib import Path
from typing import Any

from huggingface_hub import HfApi, hf_hub_download
from huggingface_hub.errors import (
    GatedRepoError,
    HFValidationError,
    RemoteEntryNotFoundError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)

from fleet.errors import ShardsiftError, UsageError
from fleet.spec import Model
from fleet.storage.errors import translated

_DEFAULT_LABELS = 2  # transformers' default where a config names no labels


def resolve_model(name: str, revision: str | None) -> Model:
    """The sequence classifier of that name, at one commit. Raises UsageError where there is none."""
    folder = Path(name).expanduser()
    if folder.is_dir():
        return _from_folder(folder.resolve(), revision)
    return _from_hub(name, revision)


def folder_revision(folder: Path) -> str:
    """What a folder has for a commit: a digest of the names and bytes of all files in the folder itself."""
    total = hashlib.sha256()
    for path in sorted(path for path in folder.iterdir() if path.is_file() and not path.name.startswith(".")):
        with path.open("rb") as file:
            total.update(f"{path.name} {hashlib.file_digest(file, 'sha256').hexdigest()}\n".encode())
    return f"sha256-{total.hexdigest()}"


def _from_folder(folder: Path, revision: str | None) -> Model:
    if not (folder / "config.json").is_file():
        raise UsageError(
            f"The folder {folder} has no config.json, so it is no model. Name a model folder with --model."
        )
    if revision:
        raise UsageError(f"A folder has no revisions: leave out --revision for the model {folder}.")
    config = _read_config(folder / "config.json", str(folder))
    return Model(name=str(folder), revision=folder_revision(folder), labels=_labels(config, str(folder)))


def _from_hub(name: str, revision: str | None) -> Model:
    shown = f"the model {name}" + (f" at revision {revision}" if revision else "")
    try:
        with translated(f"Looking for {shown}"):
            commit = _hub_commit(name, revision)
            config = _hub_config(name, commit)
    except ShardsiftError as error:
        raise UsageError(str(error)) from error
    return Model(name=name, revision=commit, labels=_labels(config, name))


def _hub_commit(name: str, revision: str | None) -> str:
    try:
        return str(HfApi().model_info(name, revision=revision).sha)
    except RevisionNotFoundError as error:
        raise UsageError(
            f"The model {name} has no revision {revision!r}. Give --revision a branch, tag or commit."
        ) from error
    except GatedRepoError as error:
        raise UsageError(f"The model {name} is gated: accept its terms on the Hub and set HF_TOKEN.") from error
    except (RepositoryNotFoundError, HFValidationError) as error:
        raise UsageError(
            f"There is no model {name!r}: neither a folder here nor a repository that the Hub shows to this HF_TOKEN."
        ) from error


def _hub_config(name: str, commit: str) -> dict[str, Any]:
    try:
        return _read_config(Path(hf_hub_download(name, "config.json", revision=commit)), name)
    except RemoteEntryNotFoundError as error:
        raise UsageError(f"The repository {name} has no config.json, so it is no transformers model.") from error


def _read_config(file: Path, name: str) -> dict[str, Any]:
    try:
        return dict(json.loads(file.read_text()))
    except (ValueError, TypeError) as error:  # no JSON, no text, or no object
        raise UsageError(f"The config.json of {name} cannot be read: {error}.") from error


def _labels(config: dict[str, Any], name: str) -> tuple[str, ...]:
    architectures = config.get("architectures") or []
    if architectures and not any("ForSequenceClassification" in architecture for architecture in architectures):
        raise UsageError(
            f"{name} is no sequence classifier: its config.json says {', '.join(architectures)}. "
            "Name a model whose architecture ends in ForSequenceClassification."
        )
    if "id2label" in config:
        return tuple(label for _, label in sorted((int(i), label) for i, label in config["id2label"].items()))
    return tuple(f"LABEL_{i}" for i in range(config.get("num_labels", _DEFAULT_LABELS)))
