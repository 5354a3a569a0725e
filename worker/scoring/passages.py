"""Score long texts in passages, and pool the logits of each text's passages."""

from typing import TYPE_CHECKING

import numpy as np

from worker.scoring.combined import Combine, CombinedClassifier, Logits
from worker.scoring.errors import ModelError
from worker.scoring.tokenizing.tokens import Counts

if TYPE_CHECKING:
    from worker.scoring.sequence_classifier import SequenceClassifier


def passage_classifier(classifier: "SequenceClassifier", passages: str, pool: str) -> CombinedClassifier:
    """A classifier of passages, of a kind that `tokenizing/passages.py` or `tokenizing/finepdfs.py` describes.

    `pool` is max or mean, of each output before any activation. Raises ModelError if the model cannot read texts so.
    """
    try:
        encoder = classifier.tokenizer.in_passages(passages)
    except ValueError as error:
        raise ModelError(f"The model {classifier.model} cannot read texts in passages: {error}.") from error
    return CombinedClassifier(classifier=classifier, encoder=encoder, combine=POOLS[pool], outputs=classifier.outputs)


def _max(logits: Logits, offsets: Counts) -> Logits:
    highest: Logits = np.maximum.reduceat(logits, offsets[:-1], axis=0)
    return highest


def _mean(logits: Logits, offsets: Counts) -> Logits:
    sums = np.add.reduceat(logits.astype(np.float64), offsets[:-1], axis=0)
    return (sums / np.diff(offsets)[:, None]).astype(np.float32)


POOLS: dict[str, Combine] = {"max": _max, "mean": _mean}
