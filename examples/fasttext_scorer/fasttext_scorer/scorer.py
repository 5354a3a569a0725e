"""Score texts with a fastText classifier, on a CPU. Only workers import this file."""

from typing import Any

import fasttext
import numpy as np
import pyarrow as pa

from fasttext_scorer import resolve
from shardsift.scorers import GoOn, Model, ScorerInfo, Scores

_BATCH = 1024  # texts between two reports of progress


class FastText:
    """A scorer that gives the probability of each label.

    fastText predicts in one thread, so the same text has the same score in every worker.
    """

    info = ScorerInfo(backend="fasttext")

    def __init__(self, model: Any) -> None:
        self._model = model
        self._column = {label: column for column, label in enumerate(model.labels)}

    def encode(self, texts: pa.LargeStringArray) -> list[str | None]:
        """Put each text on one line, because fastText refuses newlines. None for a row without a text."""
        return [text and text.replace("\n", " ") for text in texts.to_pylist()]

    def score_encoded(self, encoded: list[str | None], go_on: GoOn, earlier: Scores | None) -> Scores:
        rows = [row for row, text in enumerate(encoded) if text is not None]
        values = np.full((len(encoded), len(self._column)), np.nan, dtype=np.float32)
        errors: dict[int, str] = {}
        for start in range(0, len(rows), _BATCH):
            batch = rows[start : start + _BATCH]
            self._score(batch, [encoded[row] for row in batch], values, errors)
            if not go_on(batch[-1] + 1):
                return Scores(values=values, errors=errors, missing=np.arange(batch[-1] + 1, len(encoded)))
        go_on(len(encoded))
        return Scores(values=values, errors=errors)

    def _score(self, rows: list[int], lines: list[str | None], values: Any, errors: dict[int, str]) -> None:
        for row, labels, probabilities in zip(rows, *self._model.predict(lines, k=-1), strict=True):
            if labels:
                values[row, [self._column[label] for label in labels]] = probabilities
            else:
                errors[row] = "no word that the model knows"


def load(model: Model, _settings: object) -> FastText:
    """Load a model from `resolve`. Each worker calls this once."""
    loaded = fasttext.load_model(model.name)
    resolve(model.name, model.revision)  # raises if the file has changed since the run was enqueued
    return FastText(loaded)
