"""`--passages finepdfs` gives the scores of the procedure on the cards of the FinePDFs classifiers."""

import re
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from shardsift.worker.scoring import Reading
from shardsift.worker.scoring.sequence_classifier import SequenceClassifier
from support.families import family_classifier
from support.models import plain_scorer

pytestmark = pytest.mark.usefixtures("one_thread")
MAX_TOKENS = 64  # the recipe's 2,048 would need longer texts to be cut
WORDS = "Light is made into sugar by the green parts of a plant, [SEP] which needs water. "
TEXTS = [
    "Two words",
    "word",
    "",
    "unbreakablelongword",
    "Ends in white space.\n \n",
    "A  text with\ttabs,\n\nblank lines and no-break\u00a0spaces.",
    "日本の首都は東京です。" * 20,
    WORDS * 20,
    WORDS * 240,  # 19,440 characters: the end is not read
    "The beginning. " + WORDS * 260 + "The end of it all.",
    "x" * 20_001,
    "日本の首都は東京です。" * 2_000,
]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return family_classifier("ModernBERT", tmp_path_factory.mktemp("models") / "model")


@pytest.fixture(scope="module")
def classifier(model: Path) -> SequenceClassifier:
    return plain_scorer(model)


class Card:
    """The steps of the card, one text at a time."""

    def __init__(self, model: Path) -> None:
        self.model = AutoModelForSequenceClassification.from_pretrained(model).eval()
        self.tokenizer = AutoTokenizer.from_pretrained(model)

    def passages(self, text: str) -> list[str]:
        beginning = self.ids(text[:10_000])[: MAX_TOKENS - 2]
        if len(text) <= 20_000:
            return [self.cut_end(self.decoded(beginning))]
        end = self.ids(text[-10_000:])[-(MAX_TOKENS - 2) :]
        return [self.cut_end(self.decoded(beginning)), self.cut_start(self.decoded(end))]

    def ids(self, text: str) -> list[int]:
        found: list[int] = self.tokenizer.encode(text, add_special_tokens=False)
        return found

    def decoded(self, ids: list[int]) -> str:
        return str(self.tokenizer.decode(ids, skip_special_tokens=True))

    @staticmethod
    def cut_end(text: str) -> str:
        from_the_end = re.search(r"\s", text[::-1])
        return text[: len(text) - from_the_end.start() - 1] if from_the_end else text[:-10]

    @staticmethod
    def cut_start(text: str) -> str:
        found = re.search(r"\s", text)
        return text[found.start() + 1 :] if found else text[10:]

    @torch.inference_mode()
    def score(self, text: str) -> float:
        inputs = [self.tokenizer(passage, return_tensors="pt", truncation=True) for passage in self.passages(text)]
        return max(self.model(**one).logits.item() for one in inputs)


def test_scores_are_those_of_the_card(classifier: SequenceClassifier, model: Path) -> None:
    card = Card(model)
    scorer = classifier.reading(Reading(max_tokens=MAX_TOKENS, passages="finepdfs"))

    scores, of_nothing = (
        scorer.score_encoded(scorer.encode(texts), lambda rows: True, None) for texts in ([*TEXTS, None], [None])
    )

    assert scores.errors == {len(TEXTS): "null text"}
    assert of_nothing.errors == {0: "null text"}
    assert scores.values[:-1, 0] == pytest.approx([card.score(text) for text in TEXTS], abs=1e-5)
