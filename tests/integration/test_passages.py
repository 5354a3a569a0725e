"""Long texts in passages: the pooled logits of a plain model on the same passages, for each family and kind."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from support.families import family_classifier
from support.parity import assert_close
from support.passages import passages_of
from worker.scoring import ModelError, Reading
from worker.scoring.load import load_scorer
from worker.scoring.sequence_classifier import SequenceClassifier

pytestmark = pytest.mark.usefixtures("one_thread")
FAMILIES = ["BERT", "GPT-2"]
OTHERS = ["BART", "DeBERTa-v3", "DistilBERT", "Llama", "ModernBERT", "RoBERTa", "XLM-R"]
MAX_TOKENS = 24
TEXTS = [
    "Light becomes sugar.",
    "  ",
    "日本の首都は東京です。" * 5,
    "A sentence of some words that repeats itself, [SEP] </s> and ends. " * 12,
    "word " * 23,
    "x" * 900,
]


@pytest.fixture(
    scope="module", params=[*FAMILIES, *(pytest.param(family, marks=pytest.mark.slow) for family in OTHERS)]
)
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return family_classifier(request.param, tmp_path_factory.mktemp("models") / request.param / "model", labels=3)


@pytest.fixture(scope="module")
def classifier(model: Path) -> SequenceClassifier:
    return load_scorer(str(model), "float32", device="cpu", parity_rows=0, max_batch_tokens=256)


class Plain:
    """What a user would write: slices of the token ids, one at a time."""

    def __init__(self, model: Path) -> None:
        self.model = AutoModelForSequenceClassification.from_pretrained(model).eval()
        self.tokenizer = AutoTokenizer.from_pretrained(model)

    def windows(self, text: str, kind: str) -> list[list[int]]:
        ids = self.tokenizer(text, add_special_tokens=False)["input_ids"]
        special = self.tokenizer("")["input_ids"]  # none, one before, or one before and one after
        return [[*special[:1], *part, *special[1:]] for part in passages_of(ids, MAX_TOKENS - len(special), kind)]

    @torch.inference_mode()
    def logits(self, text: str, kind: str) -> np.ndarray[Any, Any]:
        """Shape (windows, outputs)."""
        inputs = [torch.tensor([window]) for window in self.windows(text, kind)]
        return np.concatenate([self.model(window).logits.numpy() for window in inputs])


@pytest.mark.parametrize(
    ("kind", "pool"), [("head+tail", "max"), ("head+middle+tail", "mean"), ("stride:10", "max"), ("stride:10", "mean")]
)
def test_scores_are_pooled_from_those_of_the_windows(
    kind: str, pool: str, classifier: SequenceClassifier, model: Path
) -> None:
    plain = Plain(model)
    expected = np.array([getattr(plain.logits(text, kind), pool)(axis=0) for text in TEXTS])

    scorer = classifier.reading(Reading(max_tokens=MAX_TOKENS, passages=kind, pool=pool))
    scores = scorer.score_encoded(scorer.encode([*TEXTS, None]), lambda rows: True, None)

    assert scores.errors == {len(TEXTS): "null text"}
    assert_close(scores.values[:-1], expected, task="passages", family=model.parent.name)


def test_fewer_tokens_are_those_of_the_pipeline(classifier: SequenceClassifier, model: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(model)

    scorer = classifier.reading(Reading(max_tokens=MAX_TOKENS))
    sequences = scorer.encode(TEXTS).sequences
    tokens = sequences.take(np.arange(len(sequences)))

    expected = tokenizer(TEXTS, truncation=True, max_length=MAX_TOKENS)["input_ids"]
    assert [tokens[text].tolist() for text in range(len(TEXTS))] == expected


def test_a_text_without_a_token_is_errored(tmp_path: Path) -> None:
    model = family_classifier("GPT-2", tmp_path / "model")  # adds no special tokens
    scorer = load_scorer(str(model), "float32", device="cpu", parity_rows=0).reading(Reading(passages="head+tail"))

    scores = scorer.score_encoded(scorer.encode([None, "", "Buy now!", ""]), lambda rows: True, None)

    assert scores.errors == {0: "null text", 1: "no token in the text", 3: "no token in the text"}
    assert np.isfinite(scores.values).tolist() == [[False], [False], [True], [False]]


def test_a_reading_is_made_once(classifier: SequenceClassifier) -> None:
    reading = Reading(max_tokens=MAX_TOKENS, passages="head+tail")

    assert classifier.reading(reading) is classifier.reading(Reading(max_tokens=MAX_TOKENS, passages="head+tail"))


def test_a_limit_that_the_model_cannot_have_is_refused(classifier: SequenceClassifier, model: Path) -> None:
    special = len(AutoTokenizer.from_pretrained(model)("")["input_ids"])

    for max_tokens in {special, 100_000} - {0}:
        with pytest.raises(
            ModelError, match=rf"^The model takes \d+ to \d+ tokens, not {max_tokens}\. Choose another --max"
        ):
            classifier.reading(Reading(max_tokens=max_tokens))


def test_a_stride_that_would_leave_out_tokens_is_refused(classifier: SequenceClassifier) -> None:
    with pytest.raises(ModelError, match=r"stride:25 would leave out tokens: beside the special tokens, \d+ fit"):
        classifier.reading(Reading(max_tokens=MAX_TOKENS, passages="stride:25"))
