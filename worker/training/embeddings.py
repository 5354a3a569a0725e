"""What the last layer of a frozen model reads of each text. Computed once, by the scorer that serves classifiers."""

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray

from fleet.counted import counted
from fleet.errors import UsageError
from fleet.spec import WINDOW_ROWS
from worker.scoring import ModelError, SequenceClassifier
from worker.scoring.load import scorer_of
from worker.scoring.saved_model import SavedModel
from worker.scoring.scorer import Reading
from worker.training.base_model import BaseModel, BaseModelError

Embeddings = NDArray[np.float32]  # shape (rows, width)


def load_embedder(load: Callable[[], BaseModel], *, dtype: str, device: str) -> SequenceClassifier:
    """A scorer whose outputs are the inputs of the last layer. It is as fast as a run with the finished classifier."""
    name = load().name

    def without_head() -> SavedModel:
        base = load()
        base.check_can_be_frozen()
        width = base.model.get_submodule(base.head).in_features
        base.model.set_submodule(base.head, torch.nn.Identity())
        return SavedModel(
            model=base.model,
            tokenizer=base.tokenizer,
            revision=base.revision,
            max_tokens=base.max_tokens,
            outputs=width,
        )

    try:
        return scorer_of(name, without_head, dtype, device=device)
    except ModelError as error:
        raise BaseModelError(str(error)) from error


def embeddings_of(
    texts: pa.LargeStringArray,
    embedder: SequenceClassifier,
    *,
    max_tokens: int | None,
    tell: Callable[[str], None],
) -> Embeddings:
    """Embed texts in windows, so that memory for tokens is bounded. Raises UsageError for a text that has no embedding."""
    try:
        scorer = embedder.reading(Reading(max_tokens=max_tokens)) if max_tokens else embedder
    except ModelError as error:
        raise UsageError(str(error)) from error
    assert isinstance(scorer, SequenceClassifier)  # one that reads fewer tokens
    windows = []
    for start in range(0, len(texts), WINDOW_ROWS):
        window = scorer.score(texts[start : start + WINDOW_ROWS])
        for row, reason in window.errors.items():
            raise UsageError(f"Labelled text {start + row} has no embedding: {reason}. Leave such rows out.")
        windows.append(window.values)
        tell(f"{counted(min(start + WINDOW_ROWS, len(texts)), 'text')} of {len(texts):,} embedded")
    return np.concatenate(windows)
