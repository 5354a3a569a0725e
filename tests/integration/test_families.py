"""Every family of classifiers and every kind of head gets the same scores as from the pipeline."""

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoTokenizer, pipeline

from shardsift.worker.scoring import apply
from shardsift.worker.scoring.load import load_classifier
from support.everyday import everyday
from support.families import FAMILIES, family_classifier
from support.odd_texts import real_texts
from support.parity import assert_close
from support.reference import reference_scores

pytestmark = pytest.mark.usefixtures("one_thread")

Models = Callable[[str], Path]  # by family
EVERY_FAMILY = everyday(FAMILIES, only=("BERT", "Llama", "ModernBERT"))
TRAINED = "MiniLM, trained"
WITHOUT_PADDING_TOKEN = ("GPT-2", "Llama", "Gemma 3")  # the pipeline scores their texts one at a time


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Models:
    folder = tmp_path_factory.mktemp("families")
    return cache(lambda family: family_classifier(family, folder / family))


@pytest.mark.parametrize("family", [*EVERY_FAMILY, pytest.param(TRAINED, marks=pytest.mark.slow)])
def test_float32_scores_are_the_pipelines_to_four_places(models: Models, minilm_model: Path, family: str) -> None:
    model, texts = minilm_model if family == TRAINED else models(family), real_texts(60)

    scores = load_classifier(str(model), "float32").score(texts)

    batch_size = 1 if family in WITHOUT_PADDING_TOKEN else 16
    expected = np.array(reference_scores(texts, model, batch_size=batch_size))
    assert expected.std() > 0.1  # equal scores would prove nothing
    assert_close(scores.values[:, 0], expected, task="one score", family=family)
    assert scores.errors == {}


# --- heads ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", EVERY_FAMILY)
def test_labels_have_the_scores_of_the_pipeline_also_if_the_tokenizer_pads_left(family: str, tmp_path: Path) -> None:
    model, texts = family_classifier(family, tmp_path / "model", labels=3), [*real_texts(40), "short"]
    tokenizer = AutoTokenizer.from_pretrained(model, padding_side="left")
    tokenizer.save_pretrained(model)
    logits = load_classifier(str(model), "float32", parity_rows=0).score(texts).values

    for function in ("none", "sigmoid", "softmax"):
        expected = scores_of_labels(model, texts, function)
        assert logits.shape == expected.shape
        assert expected.std(axis=0).min() > 0.01
        assert_close(apply(function, logits), expected, task=f"several labels, {function}", family=family)


def scores_of_labels(model: Path, texts: list[str], function: str) -> np.ndarray[Any, Any]:
    """Of the pipeline. Shape (texts, labels), in the order of the model's outputs."""
    classify = pipeline("text-classification", model=str(model), dtype=torch.float32, device="cpu")
    answers = classify(texts, top_k=None, truncation=True, function_to_apply=function)
    return np.array(
        [[answer["score"] for answer in sorted(row, key=lambda answer: answer["label"])] for row in answers]
    )


# --- texts that are special to a family ---------------------------------------------------------------------------------


def test_a_text_with_bart_s_own_end_marks_has_the_score_it_has_alone(models: Models) -> None:
    """BART refuses a batch whose texts have different numbers of end marks."""
    text = real_texts(1)[0][:200]
    texts = [text, "one </s> two </s> three", text + " more", "</s>"]

    scores = load_classifier(str(models("BART")), "float32").score(texts)

    assert scores.errors == {}
    assert np.abs(scores.values[:, 0] - reference_scores(texts, models("BART"), batch_size=1)).max() < 1e-4


@pytest.mark.parametrize("family", ["Llama", "Gemma 3"])
def test_a_token_that_was_added_to_the_tokenizer_alone_costs_its_rows_only(family: str, tmp_path: Path) -> None:
    """Llama's tokenizer gets a padding token in many recipes, and the model no state for it."""
    model, texts = family_classifier(family, tmp_path / "model"), real_texts(20)
    expected = load_classifier(str(model), "float32").score(texts)
    tokenizer = AutoTokenizer.from_pretrained(model)
    tokenizer.add_special_tokens({"pad_token": "[PAD]"})
    tokenizer.save_pretrained(model)

    scores = load_classifier(str(model), "float32").score([*texts, "A text with [PAD] in it."])

    assert list(scores.errors) == [20]
    assert "is not among the model's" in scores.errors[20]
    assert np.abs(scores.values[:20] - expected.values).max() < 1e-5
