"""A changed model folder is noticed: its bytes are checked before and after it is loaded."""

import json
import shutil
from importlib.metadata import distributions
from pathlib import Path

import pytest
import sentencepiece
from safetensors import safe_open

from shardsift.fleet.errors import ShardsiftError, UsageError
from shardsift.fleet.process.settings import Settings
from shardsift.fleet.scorers.sequence_classifier import resolve_classifier, revision_of_folder, unchanged_folder
from shardsift.worker.scoring import ModelError
from shardsift.worker.service.serving import load_untuned_model


@pytest.fixture
def model(tiny_model: Path, tmp_path: Path) -> Path:
    """A model folder for one test."""
    return Path(shutil.copytree(tiny_model, tmp_path / "model"))


def settings_for(model: Path, revision: str | None) -> Settings:
    return Settings(model=str(model), model_revision=revision, dtype="float32", parity_rows=0, device="cpu")


def change(model: Path) -> None:
    """Change one byte, and keep the size."""
    weights = model / "model.safetensors"
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)


def test_a_folder_that_is_what_it_was_is_loaded(model: Path) -> None:
    revision = resolve_classifier(str(model), None).revision

    scorer = load_untuned_model(settings_for(model, revision))

    assert scorer.outputs == 1
    assert resolve_classifier(str(model), revision).revision == revision


def test_a_folder_that_was_changed_is_neither_resolved_again_nor_loaded(model: Path) -> None:
    revision = revision_of_folder(model)
    change(model)

    with pytest.raises(ShardsiftError, match="have changed: the revision was sha256-"):
        resolve_classifier(str(model), revision)
    with pytest.raises(ShardsiftError, match="have changed: the revision was sha256-"):
        load_untuned_model(settings_for(model, revision))


def test_a_folder_that_is_changed_while_it_is_read_is_noticed(model: Path) -> None:
    revision = revision_of_folder(model)

    with pytest.raises(ShardsiftError, match="have changed"), unchanged_folder(str(model), revision):
        change(model)


@pytest.mark.parametrize("elsewhere", ["../outside.safetensors", "more/outside.safetensors", "/outside", ".outside"])
def test_weights_that_the_digest_does_not_cover_are_refused(model: Path, elsewhere: str) -> None:
    for weights in (model / "more/outside.safetensors", model.parent / "outside.safetensors", model / ".outside"):
        weights.parent.mkdir(exist_ok=True)
        shutil.copy(model / "model.safetensors", weights)
    names = saved_names(model / "model.safetensors")
    index = model / "model.safetensors.index.json"
    index.write_text(json.dumps({"metadata": {}, "weight_map": dict.fromkeys(names, "model.safetensors")}))
    assert load_untuned_model(settings_for(model, resolve_classifier(str(model), None).revision)).outputs == 1

    index.write_text(json.dumps({"metadata": {}, "weight_map": dict.fromkeys(names, elsewhere)}))

    with pytest.raises(UsageError, match=f"names the weights '{elsewhere}', which are not a file of that folder"):
        resolve_classifier(str(model), None)


def saved_names(weights: Path) -> list[str]:
    with safe_open(weights, "pt") as file:
        return list(file.keys())


def test_a_file_that_cannot_be_read_is_named(model: Path) -> None:
    (model / "vocab.bin").symlink_to("/proc/self/mem")  # can be opened, but not read, by any user

    with pytest.raises(UsageError, match=r"vocab\.bin cannot be read: Input/output error"):
        resolve_classifier(str(model), None)


def test_a_folder_without_a_tokenizer_is_refused(model: Path) -> None:
    """Transformers would make one up, whose every word is the same token."""
    for file in ("tokenizer.json", "tokenizer_config.json", "vocab.txt", "special_tokens_map.json"):
        (model / file).unlink(missing_ok=True)

    with pytest.raises(ModelError, match=f"The model {model} has no tokenizer"):
        load_untuned_model(settings_for(model, None))


def test_a_tokenizer_of_only_a_sentencepiece_file_is_read_or_told_what_it_needs(model: Path) -> None:
    for file in ("tokenizer.json", "tokenizer_config.json", "vocab.txt", "special_tokens_map.json"):
        (model / file).unlink(missing_ok=True)
    with (model / "tokenizer.model").open("wb") as file:
        lines = iter([f"the quick brown fox {number} jumps" for number in range(500)])
        sentencepiece.SentencePieceTrainer.train(sentence_iterator=lines, model_writer=file, vocab_size=60)
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps(config | {"tokenizer_class": "LlamaTokenizer"}))

    if "protobuf" in {name.name for name in distributions()}:
        assert load_untuned_model(settings_for(model, None)).score(["the quick fox"]).errors == {}
    else:
        with pytest.raises(ModelError, match="pip install protobuf sentencepiece"):
            load_untuned_model(settings_for(model, None))


@pytest.mark.parametrize("length", ["512", -1, True])
def test_a_length_that_is_no_number_is_told(model: Path, length: object) -> None:
    config = json.loads((model / "tokenizer_config.json").read_text())
    (model / "tokenizer_config.json").write_text(json.dumps(config | {"model_max_length": length}))

    with pytest.raises(ModelError, match=f"model_max_length={length!r}, which is no number of tokens"):
        load_untuned_model(settings_for(model, None))


def configure(model: Path, file: str = "config.json", **values: object) -> None:
    config = json.loads((model / file).read_text())
    (model / file).write_text(json.dumps(config | values))


@pytest.mark.parametrize("part", ["x", {"vocab_size": 3}, [1]])
def test_a_part_of_the_config_that_is_no_config_changes_no_score(model: Path, part: object) -> None:
    expected = load_untuned_model(settings_for(model, None)).score(["a text"]).values

    configure(model, text_config=part, return_dict=False)

    assert load_untuned_model(settings_for(model, None)).score(["a text"]).values == pytest.approx(expected)


@pytest.mark.parametrize("tokens", [1, 2])
def test_a_length_without_room_for_text_is_told(model: Path, tokens: int) -> None:
    configure(model, "tokenizer_config.json", model_max_length=tokens)

    with pytest.raises(ModelError, match=f"limit of tokens is {tokens}, and its tokenizer adds 2 to each text"):
        load_untuned_model(settings_for(model, None))


def test_weights_of_another_shape_than_the_config_says_are_named(model: Path) -> None:
    configure(model, num_labels=3)

    with pytest.raises(ModelError, match=r"classifier\.bias has the shape 1, and by its config\.json 3"):
        load_untuned_model(settings_for(model, None))


def test_an_error_of_torch_is_told_without_its_trace(model: Path) -> None:
    configure(model, max_position_embeddings=10**30)

    with pytest.raises(ModelError) as error:
        load_untuned_model(settings_for(model, None))

    assert "Overflow when unpacking long" in str(error.value)
    assert "\n" not in str(error.value)
    assert "frame #" not in str(error.value)
