"""Recipes that need no adapter give the scores of the code on the models' cards, here with small random models."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer

import shardsift
from shardsift.fleet.run.recipes import recipe_of
from support.families import family_classifier

pytestmark = pytest.mark.usefixtures("one_thread")
TEXTS = ["Light becomes sugar.", "Buy now!", "日本の首都は東京です。", "A sentence of some words that repeats. " * 80]


@torch.inference_mode()
def logits_of_the_card(model: Path, **truncation: Any) -> torch.Tensor:
    tokenizer = AutoTokenizer.from_pretrained(model)
    network = AutoModelForSequenceClassification.from_pretrained(model).eval()
    inputs = [tokenizer(text, return_tensors="pt", truncation=True, **truncation) for text in TEXTS]
    return torch.cat([network(**one).logits for one in inputs])


def scores(model: Path, recipe_of_model: str) -> np.ndarray[Any, Any]:
    """A folder has no recipe, so its options are given."""
    recipe = recipe_of(recipe_of_model)
    options = {name: value for name, value in recipe.options.items() if name not in ("int_score", "min_score")}
    scorer = shardsift.load_scorer(model, dtype="float32", device="cpu", parity_rows=0)
    return scorer.score(TEXTS, **options)


def test_fineweb_edus_classifiers_give_one_raw_score(tmp_path: Path) -> None:
    model = family_classifier("BERT", tmp_path / "model")

    found = scores(model, "HuggingFaceFW/fineweb-edu-classifier")

    assert found == pytest.approx(logits_of_the_card(model).squeeze(-1).numpy(), abs=1e-5)


def test_the_topic_classifier_gives_each_of_17_labels_a_probability(tmp_path: Path) -> None:
    model = family_classifier("ModernBERT", tmp_path / "model", labels=17)

    found = scores(model, "mdonigian/fineweb-edu-topic-classifier")

    assert found == pytest.approx(logits_of_the_card(model, max_length=512).sigmoid().numpy(), abs=1e-5)
