"""Tiny random models of natural language inference, of every family, and the scores of transformers' pipeline."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from support.families import family_classifier
from support.models import with_labels

_LABELS = ("contradiction", "neutral", "entailment")


def nli_classifier(folder: Path, family: str) -> Path:
    return with_labels(family_classifier(family, folder, labels=len(_LABELS)), _LABELS)


def pipeline_scores(
    reference: Any, texts: Sequence[str], labels: Sequence[str], **options: Any
) -> np.ndarray[Any, Any]:
    """Score texts with a zero-shot pipeline. Returns shape (texts, labels), in the order of `labels`."""
    found = [reference(text, list(labels), **options) for text in texts]
    scores = [dict(zip(one["labels"], one["scores"], strict=True)) for one in found]
    return np.array([[of_text[label] for label in labels] for of_text in scores])
