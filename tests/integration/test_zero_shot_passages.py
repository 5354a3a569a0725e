"""Labels for long texts: the pooled logits of a plain model on each passage with each hypothesis, for each family and kind."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from support.nli import nli_classifier
from support.parity import assert_close
from support.passages import passages_of
from worker.scoring import Hypotheses, ModelError, Reading
from worker.scoring.load import load_scorer
from worker.scoring.scorer import Scorer, apply
from worker.scoring.sequence_classifier import SequenceClassifier

pytestmark = pytest.mark.usefixtures("one_thread")
FAMILIES = ["BART", "BERT"]
OTHERS = ["DeBERTa-v3", "DistilBERT", "ModernBERT", "RoBERTa", "XLM-R"]
MAX_TOKENS = 48
LABELS = ["politics", "climate change", "C++", "日本"]
TEMPLATE = "This example is {}."
TEXTS = [
    "Light becomes sugar.",
    "  ",
    "日本の首都は東京です。" * 12,
    "A sentence of some words that repeats itself, [SEP] <s> and ends. " * 12,
    "x" * 900,
]


@pytest.fixture(
    scope="module", params=[*FAMILIES, *(pytest.param(family, marks=pytest.mark.slow) for family in OTHERS)]
)
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return nli_classifier(tmp_path_factory.mktemp("nli") / request.param / "model", request.param)


@pytest.fixture(scope="module")
def classifier(model: Path) -> SequenceClassifier:
    return load_scorer(str(model), "float32", device="cpu", parity_rows=0, max_batch_tokens=512)


def reading(
    kind: str = "stride:10", *, pool: str = "max", multi_label: bool = False, max_tokens: int = MAX_TOKENS
) -> Reading:
    hypotheses = Hypotheses(texts=tuple(map(TEMPLATE.format, LABELS)), entailment=2, multi_label=multi_label)
    return Reading(max_tokens=max_tokens, passages=kind, pool=pool, hypotheses=hypotheses)


def scored(scorer: Scorer[Any], texts: list[str]) -> np.ndarray[Any, Any]:
    scores = scorer.score_encoded(scorer.encode(texts), lambda rows: True, None)
    assert not scores.errors
    return scores.values


class Plain:
    """What a user would write: each slice of a text's ids with each hypothesis, one at a time."""

    def __init__(self, model: Path) -> None:
        self.model = AutoModelForSequenceClassification.from_pretrained(model).eval()
        self.tokenizer = AutoTokenizer.from_pretrained(model)
        self.frames = [self.tokenizer("", TEMPLATE.format(label)) for label in LABELS]
        (first, *_), pair = (
            self.tokenizer("x", add_special_tokens=False)["input_ids"],
            self.tokenizer("x", "y")["input_ids"],
        )
        self.before = pair.index(first)  # special tokens before a text
        self.room = MAX_TOKENS - max(len(frame["input_ids"]) for frame in self.frames)

    def windows(self, text: str, kind: str) -> list[list[int]]:
        return passages_of(self.tokenizer(text, add_special_tokens=False)["input_ids"], self.room, kind)

    @torch.inference_mode()
    def logits(self, text: str, kind: str) -> np.ndarray[Any, Any]:
        """Shape (windows, labels, outputs)."""
        return np.array(
            [[self._of_pair(window, frame) for frame in self.frames] for window in self.windows(text, kind)]
        )

    def _of_pair(self, window: list[int], frame: Any) -> np.ndarray[Any, Any]:
        inputs = {"input_ids": self._around(window, frame["input_ids"])}
        if "token_type_ids" in frame:
            inputs["token_type_ids"] = self._around([0] * len(window), frame["token_type_ids"])
        return self.model(**{name: torch.tensor([values]) for name, values in inputs.items()}).logits[0].numpy()

    def _around(self, window: list[int], frame: list[int]) -> list[int]:
        return [*frame[: self.before], *window, *frame[self.before :]]


@pytest.mark.parametrize(
    ("kind", "pool", "multi_label"),
    [
        ("head+tail", "max", False),
        ("head+middle+tail", "mean", True),
        ("stride:10", "mean", False),
        ("stride:10", "max", True),
    ],
)
def test_scores_are_pooled_per_label_from_those_of_the_windows(
    kind: str, pool: str, multi_label: bool, classifier: SequenceClassifier, model: Path
) -> None:
    plain = Plain(model)
    by_text = [plain.logits(text, kind) for text in TEXTS]
    assert max(map(len, by_text)) > 1  # there are texts that do not fit the model
    entailed = [logits[..., 2] - (logits[..., 0] if multi_label else 0) for logits in by_text]
    function = "sigmoid" if multi_label else "softmax"
    expected = apply(function, np.array([getattr(logits, pool)(axis=0) for logits in entailed], np.float32))

    values = scored(classifier.reading(reading(kind, pool=pool, multi_label=multi_label)), TEXTS)

    assert values.std(axis=0).min() > 0.01
    assert_close(apply(function, values), expected, task="zero-shot, passages", family=model.parent.name)


def test_an_empty_text_is_scored_and_a_null_is_not(classifier: SequenceClassifier) -> None:
    scorer = classifier.reading(reading())

    scores = scorer.score_encoded(scorer.encode([None, "", TEXTS[3]]), lambda rows: True, None)

    assert scores.errors == {0: "null text"}
    assert np.isfinite(scores.values[1:]).all()


def test_a_stride_that_would_leave_out_tokens_is_refused(classifier: SequenceClassifier) -> None:
    with pytest.raises(ModelError, match=r"stride:40 would leave out tokens: beside the longest hypothesis, \d+ fit"):
        classifier.reading(reading("stride:40"))
