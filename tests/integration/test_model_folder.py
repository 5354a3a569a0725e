"""A changed model folder is noticed: its bytes are checked after it is loaded."""

import json
import shutil
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

import pytest
import sentencepiece
from safetensors import safe_open

from shardsift.fleet.errors import ShardsiftError, UsageError
from shardsift.fleet.process.settings import Settings
from shardsift.fleet.run.model import Model
from shardsift.fleet.scorers.sequence_classifier import resolve_classifier, revision_of_folder, unchanged_folder
from shardsift.worker.scoring import ModelError
from shardsift.worker.scoring.sequence_classifier import SequenceClassifier
from shardsift.worker.service.serving import load_untuned_model
from support.models import configured


@pytest.fixture
def model(tiny_model: Path, tmp_path: Path) -> Path:
    """A model folder for one test."""
    return Path(shutil.copytree(tiny_model, tmp_path / "model"))


def loaded(folder: Path, revision: str | None = None) -> SequenceClassifier:
    """Load the folder at a revision, or as it is now."""
    model = Model(name=str(folder), revision=revision or revision_of_folder(folder), labels=("LABEL_0",))
    return load_untuned_model(model, Settings(dtype="float32", parity_rows=0, device="cpu"))


def change(model: Path) -> None:
    """Change one byte, and keep the size."""
    weights = model / "model.safetensors"
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)


def test_a_folder_that_was_changed_is_neither_resolved_again_nor_loaded(model: Path) -> None:
    revision = revision_of_folder(model)
    change(model)

    with pytest.raises(ShardsiftError, match="have changed: the revision was sha256-"):
        resolve_classifier(str(model), revision)
    with pytest.raises(ShardsiftError, match="have changed: the revision was sha256-"):
        loaded(model, revision)


def test_a_folder_that_is_changed_while_it_is_read_is_noticed_also_if_reading_it_fails(model: Path) -> None:
    pinned = resolve_classifier(str(model), None)

    with pytest.raises(ShardsiftError, match="have changed"), unchanged_folder(pinned):
        fail_to_read_what_changes(model)


def fail_to_read_what_changes(model: Path) -> None:
    change(model)
    raise ModelError("Its files do not fit together.")


@pytest.mark.parametrize("elsewhere", ["../outside.safetensors", "more/outside.safetensors", "/outside", ".outside"])
def test_weights_that_the_digest_does_not_cover_are_refused(model: Path, elsewhere: str) -> None:
    for weights in (model / "more/outside.safetensors", model.parent / "outside.safetensors", model / ".outside"):
        weights.parent.mkdir(exist_ok=True)
        shutil.copy(model / "model.safetensors", weights)
    names = saved_names(model / "model.safetensors")
    index = model / "model.safetensors.index.json"
    index.write_text(json.dumps({"metadata": {}, "weight_map": dict.fromkeys(names, "model.safetensors")}))
    assert loaded(model, resolve_classifier(str(model), None).revision).outputs == 1

    index.write_text(json.dumps({"metadata": {}, "weight_map": dict.fromkeys(names, elsewhere)}))

    with pytest.raises(UsageError, match=f"names the weights '{elsewhere}', which are not a file of that folder"):
        resolve_classifier(str(model), None)


def saved_names(weights: Path) -> list[str]:
    with safe_open(weights, "pt") as file:
        return list(file.keys())


def test_a_folder_without_a_tokenizer_is_refused_and_one_of_only_a_sentencepiece_file_is_read(model: Path) -> None:
    """Transformers would make one up, whose every word is the same token."""
    for file in ("tokenizer.json", "tokenizer_config.json", "vocab.txt", "special_tokens_map.json"):
        (model / file).unlink(missing_ok=True)
    with pytest.raises(ModelError, match=f"The model {model} has no tokenizer"):
        loaded(model)

    with (model / "tokenizer.model").open("wb") as file:
        lines = iter([f"the quick brown fox {number} jumps" for number in range(500)])
        sentencepiece.SentencePieceTrainer.train(sentence_iterator=lines, model_writer=file, vocab_size=60)
    configured(model, tokenizer_class="LlamaTokenizer")

    if "protobuf" in {name.name for name in distributions()}:
        assert loaded(model).score(["the quick fox"]).errors == {}
    else:
        with pytest.raises(ModelError, match="pip install protobuf sentencepiece"):
            loaded(model)


CONFIG, TOKENIZER = "config.json", "tokenizer_config.json"


@pytest.mark.parametrize(
    ("file", "values", "says"),
    [
        *((TOKENIZER, {"model_max_length": length}, "which is no number of tokens") for length in ("512", -1, True)),
        (TOKENIZER, {"model_max_length": 2}, "limit of tokens is 2, and its tokenizer adds 2 to each text"),
        (CONFIG, {"num_labels": 3}, r"classifier\.bias has the shape 1, and by its config\.json 3"),
        (CONFIG, {"max_position_embeddings": 10**30}, "Overflow when unpacking long"),  # torch's, with a trace
    ],
)
def test_a_config_that_its_weights_or_tokenizer_contradict_is_reported_in_one_line(
    model: Path, file: str, values: dict[str, Any], says: str
) -> None:
    configured(model, file, **values)

    with pytest.raises(ModelError, match=says) as refused:
        loaded(model)

    assert "\n" not in str(refused.value)
    assert "frame #" not in str(refused.value)
