"""A config.json may hold any JSON: it is read as transformers reads it, or told in one sentence."""

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st

from shardsift.fleet.errors import UsageError
from shardsift.fleet.run.flops import shape_of
from shardsift.fleet.run.model import Model
from shardsift.fleet.run.model_config import labels_of, sizes_in
from shardsift.fleet.scorers.sequence_classifier import configured_threshold, resolve_classifier

ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.sampled_from(["0", "1", "bert"]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["0", "1", "x", "02"]), inner, max_size=3)
    ),
    max_leaves=6,
)
FIELDS = (
    *("id2label", "num_labels", "architectures", "problem_type", "auto_map", "shardsift_threshold", "model_type"),
    *("text_config", "decoder", "hidden_size", "num_attention_heads", "num_hidden_layers", "intermediate_size"),
    *("max_position_embeddings", "is_encoder_decoder", "num_key_value_heads", "head_dim"),
)
CONFIGS = st.dictionaries(st.sampled_from(FIELDS), ANY_JSON, max_size=6)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("model")


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(config=CONFIGS)
@example(config={"id2label": None})
@example(config={"id2label": {"0": None, "1": True}})
@example(config={"id2label": ["a", "b"]})
@example(config={"num_labels": 10**30})
@example(config={"architectures": "\n"})
@example(config={"auto_map": ["x"]})
@example(config={"shardsift_threshold": 10**400})
def test_whatever_a_config_holds_there_is_an_answer_or_one_sentence(config: dict[str, Any], folder: Path) -> None:
    (folder / "config.json").write_text(json.dumps(config))

    shape = shape_of(SimpleNamespace(**sizes_in(config)))
    configured_threshold(Model(name=str(folder), revision="sha256-0", labels=("x",)))
    answer = answer_on(lambda: resolve_classifier(str(folder), None).labels)

    assert shape is None or shape.layers > 0
    assert "\n" not in answer if isinstance(answer, str) else all(isinstance(label, str) for label in answer)


def answer_on(question: Callable[[], tuple[str, ...]]) -> tuple[str, ...] | str:
    """The labels, or the sentence that says why there are none."""
    try:
        return question()
    except UsageError as error:
        return str(error)


@settings(max_examples=300, deadline=None)
@given(
    config=st.fixed_dictionaries(
        {}, optional={name: ANY_JSON | st.integers(-1, 4) for name in ("id2label", "num_labels", "problem_type")}
    )
)
@example(config={"id2label": {"0": 0, "1": None}})
@example(config={"id2label": {"1": "b", "0": "a"}})
@example(config={"num_labels": None})
@example(config={"num_labels": True})
def test_labels_are_those_that_transformers_serves(config: dict[str, Any]) -> None:
    transformers = pytest.importorskip("transformers")
    assume(not isinstance(config.get("num_labels"), int) or config["num_labels"] < 10_000)  # it makes a label for each
    try:
        served = transformers.BertConfig.from_dict(config).id2label
    except Exception:
        served = None

    labels = answer_on(lambda: labels_of(config, "a/model"))

    if isinstance(labels, str):
        assert not served
    elif served is not None:
        names = [served[output] for output in sorted(served)]
        assert [name if isinstance(name, str) else json.dumps(name) for name in names] == list(labels)


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a": NaN', "[]", "null", '"x"', "", "\ufeff{}", "1" * 5_000])
def test_a_file_that_is_no_object_is_reported(text: str, folder: Path) -> None:
    (folder / "config.json").write_text(text)

    with pytest.raises(UsageError, match=r"The config\.json of .* cannot be read"):
        resolve_classifier(str(folder), None)


def test_a_model_of_several_parts_has_the_sizes_of_the_one_that_reads_text() -> None:
    text = {"model_type": "gemma3_text", "hidden_size": 8, "max_position_embeddings": 512}
    config = {"model_type": "gemma3", "text_config": text, "vision_config": {"hidden_size": 99}, "hidden_size": 7}

    assert sizes_in(config) == {**text, "is_encoder_decoder": False}
