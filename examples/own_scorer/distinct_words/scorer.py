"""Score a text by the share of its words that are different. Only workers import this file."""

from typing import Any

import numpy as np
import pyarrow as pa

from shardsift.scorers import GoOn, Model, ScorerInfo, Scores


class DistinctWords:
    """A scorer. The same texts always have the same scores, as `shardsift.scorers.Scorer` requires."""

    info = ScorerInfo(backend="distinct-words")

    def __init__(self, *, lower_case: bool) -> None:
        self._lower_case = lower_case

    def encode(self, texts: pa.LargeStringArray) -> list[list[str]]:
        """Split each text into words; none for a row without a text. Runs while another window is being scored."""
        plain = [text or "" for text in texts.to_pylist()]
        return [(text.lower() if self._lower_case else text).split() for text in plain]

    def score_encoded(self, encoded: list[list[str]], go_on: GoOn, earlier: Scores | None) -> Scores:
        """Return a score for each row. A row without words gets a reason instead."""
        values = np.full((len(encoded), 1), np.nan, dtype=np.float32)
        for row, words in enumerate(encoded):
            if words:
                values[row] = len(set(words)) / len(words)
        go_on(len(encoded))
        return Scores(values=values, errors={row: "no word" for row, words in enumerate(encoded) if not words})


def load(model: Model, settings: Any) -> DistinctWords:
    """Load a model from `resolve`. Each worker calls this once."""
    return DistinctWords(lower_case=model.name == "lower-case")
