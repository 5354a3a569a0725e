"""The small files of a model that tell its size and its tokenizer. No weights are read or downloaded."""

import json
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from huggingface_hub import hf_hub_download
from huggingface_hub.errors import EntryNotFoundError, LocalEntryNotFoundError

from fleet.errors import ShardsiftError
from fleet.run.flops import Shape
from fleet.run.model import SEQUENCE_CLASSIFIER, Model
from fleet.storage.errors import translated

_UNLIMITED = 1 << 30  # tokens
# How config.json of some families calls the fields of others.
_ALSO_CALLED = {
    "dim": "hidden_size",
    "n_layers": "num_hidden_layers",
    "n_heads": "num_attention_heads",
    "hidden_dim": "intermediate_size",
}
_POSITIONS_FROM_2 = {"roberta", "xlm-roberta", "camembert", "xlm-roberta-xl"}  # the first two are for padding


@dataclass(frozen=True, kw_only=True)
class ModelFiles:
    """`tokenizer` and `shape` are None if they are not known; `why` then says it of the tokenizer."""

    max_tokens: int  # that the model reads at once
    tokenizer: Path | None = None
    why: str = ""
    shape: Shape | None = None


def read_model_files(model: Model) -> ModelFiles:
    """Raises ShardsiftError if the model has no such files, or they cannot be read: then nothing is known of it."""
    if model.scorer != SEQUENCE_CLASSIFIER:
        raise ShardsiftError(f"what the scorer {model.scorer} makes of a text is known to its workers only")
    config = _json(_file(model, "config.json"))
    limits = [_positions(config), _json(_file(model, "tokenizer_config.json")).get("model_max_length")]
    try:
        tokenizer, why = _file(model, "tokenizer.json"), f"{model.name} has no tokenizer.json"
    except ShardsiftError as error:
        tokenizer, why = None, str(error).rstrip(".")
    return ModelFiles(
        max_tokens=int(min((limit for limit in limits if limit), default=_UNLIMITED)),
        tokenizer=tokenizer,
        why="" if tokenizer else why,
        shape=_shape(config),
    )


def _file(model: Model, name: str) -> Path | None:
    """None if the model has no such file."""
    if model.is_folder:
        file = Path(model.name) / name
        return file if file.is_file() else None
    try:
        with translated(f"Reading {name} of {model.name}"):
            return _downloaded(model, name)
    except _NoSuchFile:
        return None


class _NoSuchFile(ShardsiftError):
    """The repository has no such file."""


def _downloaded(model: Model, name: str) -> Path:
    try:
        return Path(hf_hub_download(model.name, name, revision=model.revision))
    except LocalEntryNotFoundError:  # no network: the file may be there or not
        raise
    except EntryNotFoundError as error:
        raise _NoSuchFile(name) from error


def _json(file: Path | None) -> dict[str, Any]:
    try:
        return dict(json.loads(file.read_text())) if file else {}
    except (OSError, ValueError, TypeError) as error:
        raise ShardsiftError(f"{file} cannot be read ({error})") from error


def _positions(config: dict[str, Any]) -> int | None:
    positions = config.get("max_position_embeddings")
    if not isinstance(positions, int) or positions <= 0:
        return None
    return positions - 2 if config.get("model_type") in _POSITIONS_FROM_2 else positions


def _shape(config: dict[str, Any]) -> Shape | None:
    named = {"is_encoder_decoder": False, "model_type": "this model"}
    named |= {_ALSO_CALLED.get(name, name): value for name, value in config.items()}
    try:
        return Shape.of(SimpleNamespace(**named))
    except (ValueError, AttributeError, TypeError):
        return None
