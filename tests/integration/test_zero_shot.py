"""Zero-shot scores are those of the real `pipeline("zero-shot-classification")`, for each family and for odd texts and labels."""

import copy
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from transformers import pipeline

from support.interrupted import whole_partial_resumed
from support.nli import nli_classifier, pipeline_scores
from support.parity import assert_close
from worker.scoring import Hypotheses, ModelError, Reading
from worker.scoring.load import load_scorer
from worker.scoring.scorer import apply
from worker.scoring.sequence_classifier import SequenceClassifier
from worker.scoring.tokenizing.tokenize import TextTokenizer, plain_texts
from worker.scoring.tokenizing.tokens import plan_batches

pytestmark = pytest.mark.usefixtures("one_thread")
FAMILIES = ["BART", "BERT", "DeBERTa-v3"]
OTHERS = ["DistilBERT", "ModernBERT", "RoBERTa", "XLM-R"]
LABELS = ["politics", "climate change", "food, drink and travel", "C++", "日本"]
TEMPLATE = "This example is {}."
TEXTS = [
    "Light becomes sugar.",
    "Buy now!",
    " \n",
    "It ends here </s> and begins <s> again [SEP] or not.",
    "日本の首都は東京です。",
    "é" * 40,
    "A sentence of some words that repeats itself. " * 200,
    "x" * 3000,
]


@pytest.fixture(
    scope="module", params=[*FAMILIES, *(pytest.param(family, marks=pytest.mark.slow) for family in OTHERS)]
)
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return nli_classifier(tmp_path_factory.mktemp("nli") / request.param / "model", request.param)


@pytest.fixture(scope="module")
def classifier(model: Path) -> SequenceClassifier:
    return load_scorer(str(model), "float32", device="cpu", parity_rows=0, max_batch_tokens=2048)


@pytest.fixture(scope="module")
def reference(model: Path) -> Any:
    return pipeline("zero-shot-classification", model=str(model), device="cpu")


def ours(classifier: SequenceClassifier, labels: list[str], *, multi_label: bool = False) -> SequenceClassifier:
    hypotheses = tuple(TEMPLATE.format(label) for label in labels)
    return classifier.reading(Reading(hypotheses=Hypotheses(texts=hypotheses, entailment=2, multi_label=multi_label)))


@pytest.mark.parametrize("multi_label", [False, True])
def test_scores_are_those_of_the_pipeline(
    multi_label: bool, classifier: SequenceClassifier, reference: Any, model: Path
) -> None:
    scorer = ours(classifier, LABELS, multi_label=multi_label)

    scores = scorer.score_encoded(scorer.encode(TEXTS))

    assert not scores.errors
    found = apply("sigmoid" if multi_label else "softmax", scores.values)
    assert found.std() > 0.01  # the model tells labels and texts apart
    expected = pipeline_scores(reference, TEXTS, LABELS, multi_label=multi_label)
    assert_close(found, expected, task="zero-shot", family=model.parent.name)


@pytest.mark.parametrize("labels", [["a single label"], [f"label number {number}" for number in range(100)]], ids=len)
def test_one_label_and_a_hundred_are_scored_as_by_the_pipeline(
    labels: list[str], classifier: SequenceClassifier, reference: Any
) -> None:
    texts = TEXTS[:3]
    scorer = ours(classifier, labels, multi_label=len(labels) == 1)

    scores = scorer.score_encoded(scorer.encode(texts))

    found = apply("sigmoid" if len(labels) == 1 else "softmax", scores.values)
    assert found == pytest.approx(pipeline_scores(reference, texts, labels), abs=1e-4)


def test_a_tokenizer_that_cuts_texts_at_their_beginning_is_followed(model: Path, reference: Any) -> None:
    tokenizer = copy.deepcopy(reference.tokenizer)
    tokenizer.truncation_side = "left"
    hypotheses = [TEMPLATE.format(label) for label in LABELS]

    pairs = TextTokenizer(tokenizer, max_tokens=tokenizer.model_max_length).sequences("head", hypotheses)
    tokens = pairs.encode(plain_texts(TEXTS))[0].take(np.arange(len(TEXTS) * len(LABELS)))

    expected = [
        tokenizer(text, hypothesis, truncation="only_first")["input_ids"] for text in TEXTS for hypothesis in hypotheses
    ]
    assert [tokens[pair].tolist() for pair in range(len(tokens))] == expected


def test_a_hypothesis_that_fills_the_model_is_refused(classifier: SequenceClassifier) -> None:
    too_long = Hypotheses(texts=("many words " * 600,), entailment=2, multi_label=False)

    with pytest.raises(
        ModelError, match=r"^The hypothesis '(many words )+\[\.\.\.\]' has \d+ tokens, and the model takes \d+"
    ):
        classifier.reading(Reading(hypotheses=too_long))


def test_a_resumed_window_has_the_same_bytes(classifier: SequenceClassifier) -> None:
    scorer = ours(classifier, LABELS)
    encoded = scorer.encode([*TEXTS, None, *TEXTS])

    whole, partial, resumed = whole_partial_resumed(scorer, encoded)

    assert 0 < len(partial.missing) < len(encoded.row_of_text)
    assert whole.errors == resumed.errors == {len(TEXTS): "null text"}
    assert whole.values.tobytes() == resumed.values.tobytes()


def test_the_pairs_of_a_text_share_a_batch_if_they_fit(classifier: SequenceClassifier) -> None:
    scorer = ours(classifier, LABELS)
    pairs = scorer.encode([f"{'word ' * number}end" for number in range(30)]).sequences

    batches = plan_batches(pairs.batch_lengths, max_batch_tokens=20 * int(pairs.batch_lengths.max()))

    texts_of_batches = [set((batch // len(LABELS)).tolist()) for batch in batches]
    shared = sum(len(one & other) for one, other in pairwise(texts_of_batches))
    assert shared < len(batches)  # at most the text at the edge of a batch is split
    assert all(one.isdisjoint(other) for one, other in zip(texts_of_batches, texts_of_batches[2:], strict=False))
