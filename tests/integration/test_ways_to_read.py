"""Passages, labels and pairs have the scores of transformers: of a plain model on the same ids, or of its pipelines."""

from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer, pipeline

from shardsift.fleet.run.text import pairs
from shardsift.worker.scoring import Hypotheses, ModelError, Reading, Scores, apply
from shardsift.worker.scoring.parity_trial import sample_texts
from shardsift.worker.scoring.sequence_classifier import SequenceClassifier
from shardsift.worker.scoring.tokenizing.tokenize import TextTokenizer, plain_texts
from support.everyday import everyday
from support.families import FAMILIES
from support.models import plain_scorer
from support.nli import nli_classifier, pipeline_scores
from support.parity import assert_close

pytestmark = pytest.mark.usefixtures("one_thread")
EVERYDAY = ("BART", "BERT")
EVERY_FAMILY = everyday(FAMILIES, only=EVERYDAY)
DECODERS = ("GPT-2", "Llama")  # the zero-shot pipeline needs a padding token, and GPT-2 gives an empty text no token
LABELS = ["politics", "climate change", "C++", "日本"]
TEXTS = [
    "Light becomes sugar.",
    "  ",
    "日本の首都は東京です。" * 12,
    "A sentence of some words that repeats itself, [SEP] </s> <s> and ends. " * 60,
    "x" * 900,
]
LONGER = [TEXTS[0], TEXTS[2], "A sentence of some words that repeats itself, [SEP] </s> and ends. " * 12]
MAX_TOKENS = 48
loaded = partial(plain_scorer, max_batch_tokens=2048)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    folder = tmp_path_factory.mktemp("families")
    return cache(lambda family: nli_classifier(folder / family, family))


@pytest.fixture(scope="module")
def bert(models: Callable[[str], Path]) -> SequenceClassifier:
    return loaded(models("BERT"))


def hypotheses(labels: Sequence[str], *, multi_label: bool = False) -> Hypotheses:
    texts = tuple(f"This example is {label}." for label in labels)
    return Hypotheses(texts=texts, entailment=2, multi_label=multi_label)


def scored(scorer: SequenceClassifier, texts: Any) -> Scores:
    return scorer.score_encoded(scorer.encode(texts))


class Plain:
    """What a user would write: each slice of a text's ids, alone or with each hypothesis, one at a time."""

    def __init__(self, model: Path, seconds: Sequence[str]) -> None:
        self.model = AutoModelForSequenceClassification.from_pretrained(model).eval()
        self.tokenizer = AutoTokenizer.from_pretrained(model)
        self.frames = [self.tokenizer("", second) for second in seconds] or [self.tokenizer("")]
        (first, *_) = self.tokenizer("x", add_special_tokens=False)["input_ids"]
        around = self.tokenizer("x", "y" if seconds else None)["input_ids"]
        self.before = around.index(first)  # special tokens before a text
        self.room = MAX_TOKENS - max(len(frame["input_ids"]) for frame in self.frames)

    @torch.inference_mode()
    def logits(self, text: str, kind: str) -> np.ndarray[Any, Any]:
        """Shape (passages, frames, outputs)."""
        ids = self.tokenizer(text, add_special_tokens=False)["input_ids"]
        return np.array([[self._of(part, frame) for frame in self.frames] for part in self._passages(ids, kind)])

    def _passages(self, ids: list[int], kind: str) -> list[list[int]]:
        """The parts of a text's ids that `--passages kind` reads. One if the text is not longer."""
        last = max(0, len(ids) - self.room)
        if kind.startswith("stride:"):
            starts = [*range(0, last, int(kind.removeprefix("stride:"))), last]
        else:
            middle = -(-last // 2) if last > self.room else last
            starts = {"head+tail": [0, last], "head+middle+tail": [0, middle, last]}[kind]
        return [ids[start : start + self.room] for start in dict.fromkeys(starts)]

    def _of(self, part: list[int], frame: Any) -> np.ndarray[Any, Any]:
        inputs = {"input_ids": self._around(part, frame["input_ids"])}
        if "token_type_ids" in frame:
            inputs["token_type_ids"] = self._around([0] * len(part), frame["token_type_ids"])
        return self.model(**{name: torch.tensor([values]) for name, values in inputs.items()}).logits[0].numpy()

    def _around(self, part: list[int], frame: list[int]) -> list[int]:
        return [*frame[: self.before], *part, *frame[self.before :]]


PASSAGES = (("head+tail", "max"), ("head+middle+tail", "mean"), ("stride:10", "mean"))
LABELLING = (None, False, True)  # not at all, together, each label alone


def combined() -> Iterator[Any]:
    """Each family with each kind of passages and each labelling, and over the families each kind with each labelling."""
    for place, family in enumerate(FAMILIES):
        for number, (kind, pool) in enumerate(PASSAGES):
            shift = place + place // 6  # the two families of every day meet other pairs
            labelling = None if family in DECODERS else LABELLING[(number + shift) % len(LABELLING)]
            marks = () if family in EVERYDAY else pytest.mark.slow
            yield pytest.param(family, labelling, kind, pool, marks=marks)


@pytest.mark.parametrize(("family", "multi_label", "kind", "pool"), [*combined()])
def test_passages_have_the_pooled_scores_of_a_plain_model(
    family: str, multi_label: bool | None, kind: str, pool: str, models: Callable[[str], Path]
) -> None:
    labels = None if multi_label is None else hypotheses(LABELS, multi_label=multi_label)
    plain = Plain(models(family), labels.texts if labels else ())
    by_text = [plain.logits(text, kind) for text in LONGER]
    assert max(map(len, by_text)) > 1  # there are texts that do not fit the model
    if labels:
        by_text = [logits[..., 2] - (logits[..., 0] if multi_label else 0) for logits in by_text]
    expected = np.array([getattr(logits, pool)(axis=0).ravel() for logits in by_text], np.float32)

    reading = Reading(max_tokens=MAX_TOKENS, passages=kind, pool=pool, hypotheses=labels)
    scores = scored(loaded(models(family)).reading(reading), [*LONGER, None])

    assert scores.errors == {3: "null text"}
    assert expected.std(axis=0).min() > 0.01
    function = {None: "none", False: "softmax", True: "sigmoid"}[multi_label]
    task = "passages" if labels is None else "zero-shot, passages"
    assert_close(apply(function, scores.values[:3]), apply(function, expected), task=task, family=family)


@pytest.mark.parametrize("multi_label", [False, True])
@pytest.mark.parametrize("family", EVERY_FAMILY)
def test_labels_have_the_scores_of_the_pipeline(family: str, multi_label: bool, models: Callable[[str], Path]) -> None:
    if family in DECODERS:
        pytest.skip("not a model for labels")
    reference = pipeline("zero-shot-classification", model=str(models(family)), device="cpu")

    scores = scored(
        loaded(models(family)).reading(Reading(hypotheses=hypotheses(LABELS, multi_label=multi_label))), TEXTS
    )

    assert not scores.errors
    found = apply("sigmoid" if multi_label else "softmax", scores.values)
    assert found.std() > 0.01  # the model tells labels and texts apart
    expected = pipeline_scores(reference, TEXTS, LABELS, multi_label=multi_label)
    assert_close(found, expected, task="zero-shot", family=family)


@pytest.mark.parametrize("labels", [["a single label"], [f"label number {number}" for number in range(100)]], ids=len)
def test_one_label_and_a_hundred_are_scored_as_by_the_pipeline(labels: list[str], bert: SequenceClassifier) -> None:
    reference, alone = pipeline("zero-shot-classification", model=bert.model, device="cpu"), len(labels) == 1

    scores = scored(bert.reading(Reading(hypotheses=hypotheses(labels, multi_label=alone))), TEXTS[:2])

    found = apply("sigmoid" if alone else "softmax", scores.values)
    assert found == pytest.approx(pipeline_scores(reference, TEXTS[:2], labels), abs=1e-4)


FIRSTS = [*sample_texts(4, seed=1), "short", "a </s> [SEP] b", "long " * 900, "x"]
SECONDS = ["what is a list?", *sample_texts(3, seed=2), "z", "c [SEP] </s>", "longer " * 1200, "y " * 600]


@pytest.mark.parametrize("family", EVERY_FAMILY)
def test_pairs_have_the_scores_of_the_pipeline(family: str, models: Callable[[str], Path]) -> None:
    model = models(family)
    classify = pipeline("text-classification", model=str(model), device="cpu", function_to_apply="none", top_k=None)
    together = [{"text": first, "text_pair": second} for first, second in zip(FIRSTS, SECONDS, strict=True)]
    found = [{one["label"]: one["score"] for one in classify(pair, truncation=True)} for pair in together]
    texts = pairs(pa.array(FIRSTS, pa.large_string()), pa.array(SECONDS, pa.large_string()))

    scores = scored(loaded(model).reading(Reading(pairs=True)), texts)

    expected = np.array([[one[label] for label in ("contradiction", "neutral", "entailment")] for one in found])
    assert_close(scores.values, expected, task="pairs", family=family)
    assert expected.std(axis=0).min() > 0.05


def test_a_tokenizer_that_cuts_texts_at_their_beginning_is_followed(bert: SequenceClassifier) -> None:
    tokenizer = AutoTokenizer.from_pretrained(bert.model, truncation_side="left")
    seconds = hypotheses(LABELS).texts

    encoder = TextTokenizer(tokenizer, max_tokens=512).sequences("head", seconds)
    tokens = encoder.encode(plain_texts(TEXTS))[0].take(np.arange(len(TEXTS) * len(LABELS)))

    expected = [
        tokenizer(text, second, truncation="only_first", max_length=512)["input_ids"]
        for text in TEXTS
        for second in seconds
    ]
    assert [tokens[pair].tolist() for pair in range(len(tokens))] == expected


def test_a_text_without_a_token_is_errored_unless_a_hypothesis_is_beside_it(
    models: Callable[[str], Path], bert: SequenceClassifier
) -> None:
    scorer = loaded(models("GPT-2"))  # which adds no special tokens

    for reading in (Reading(), Reading(passages="head+tail")):
        scores = scored(scorer.reading(reading), [None, "", "Buy now!", ""])

        assert scores.errors == {0: "null text", 1: "no token in the text", 3: "no token in the text"}
        assert np.isfinite(scores.values).all(axis=1).tolist() == [False, False, True, False]
    beside = scored(bert.reading(Reading(passages="head+tail", hypotheses=hypotheses(LABELS))), [None, ""])
    assert beside.errors == {0: "null text"}
    assert np.isfinite(beside.values[1]).all()


@pytest.mark.parametrize(
    ("reading", "says"),
    [
        (Reading(max_tokens=2), r"^The model takes 3 to 512 tokens, not 2\. Choose another --max-tokens"),
        (Reading(max_tokens=100_000), r"^The model takes 3 to 512 tokens, not 100000\."),
        (Reading(max_tokens=24, passages="stride:25"), "leave out tokens: beside the special tokens, 22 fit"),
        (
            Reading(max_tokens=48, passages="stride:40", hypotheses=hypotheses(LABELS)),
            r"leave out tokens: beside the longest hypothesis, \d+ fit",
        ),
        (
            Reading(hypotheses=hypotheses(["many words " * 600])),
            r"^The hypothesis '.*\[\.\.\.\]' has \d+ tokens, and the model takes 512",
        ),
    ],
)
def test_a_reading_that_the_model_cannot_have_is_refused(reading: Reading, says: str, bert: SequenceClassifier) -> None:
    with pytest.raises(ModelError, match=says):
        bert.reading(reading)
