"""What identifies a training: two that are described alike give the same model, wherever their files are."""

import dataclasses
import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fleet.sequence_classifier import revision_of_folder
from worker.training.spec import TrainSpec
from worker.training.splits import Split

if TYPE_CHECKING:  # so that importing this loads no torch
    from worker.training.base_model import BaseModel

Description = dict[str, Any]
# Of the spec: where things are. Digests are compared instead of names.
_PLACES = {"output_uri", "data_uri", "label_with", "validation_uri"}


def described(spec: TrainSpec, split: Split) -> Description:
    """The options and the rows, with the base model by its name, since it is not loaded yet."""
    fields = dataclasses.asdict(spec)
    options = {name: value for name, value in fields.items() if name not in {*_PLACES, "full"}}
    return {**options, **(fields["full"] or {}), "data": split.data_digest, "validation": split.validation_digest}


def described_in_full(spec: TrainSpec, split: Split, base: "BaseModel", *, processes: int) -> Description:
    """With the weights that it begins with instead of their name, and by how many processes a step's rows are multiplied."""
    return {**described(spec, split), "base_model": _weights_of(base), "processes": processes}


def digest_of(description: Description) -> str:
    return hashlib.sha256(json.dumps(description, sort_keys=True).encode()).hexdigest()[:12]


def _weights_of(base: "BaseModel") -> str:
    """A digest of a folder's files, or the commit of a Hub model as it was loaded."""
    folder = Path(base.name).expanduser()
    if folder.is_dir():
        return revision_of_folder(folder)
    return f"{base.name}@{getattr(base.model.config, '_commit_hash', None) or base.revision}"
