"""Score each text by several sequences, and combine their logits: passages of a long text, or a text with several hypotheses."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from worker.scoring.rows import GoOn, Indices, Scores, always
from worker.scoring.scorer import Place, ScorerInfo
from worker.scoring.tokenizing.texts import Texts, plain_texts
from worker.scoring.tokenizing.tokens import Counts, Sequences

if TYPE_CHECKING:
    from worker.scoring.sequence_classifier import SequenceClassifier

Logits = npt.NDArray[np.float32]
Combine = Callable[[Logits, Counts], Logits]  # (sequences, model's outputs), offsets of texts → (texts, outputs)


class SequenceEncoder(Protocol):
    def encode(self, texts: pa.LargeStringArray, /) -> tuple[Sequences, Counts]:
        """The sequences of all texts, and their offsets: those of text i are `offsets[i]:offsets[i + 1]`, at least one.

        `texts` has no nulls.
        """


@dataclass(frozen=True, kw_only=True)
class EncodedTexts:
    """The sequences of a window's texts."""

    rows: int  # including those in `errors`
    sequences: Sequences
    offsets: Counts  # of each text in `sequences`, and the end of the last
    row_of_text: Indices
    errors: dict[int, str]  # row → why it has no sequences


@dataclass(frozen=True, kw_only=True)
class CombinedClassifier:
    """A classifier that scores the sequences of `encoder` and combines the logits of each text by `combine`."""

    classifier: "SequenceClassifier"
    encoder: SequenceEncoder
    combine: Combine
    outputs: int

    @property
    def info(self) -> ScorerInfo:
        return self.classifier.info

    def encode(self, texts: Texts, place: Place | None = None) -> EncodedTexts:
        column = plain_texts(texts)
        present = np.flatnonzero(column.is_valid().to_numpy(zero_copy_only=False))
        errors = dict.fromkeys(np.setdiff1d(np.arange(len(column)), present).tolist(), "null text")
        sequences, offsets = self.encoder.encode(column.drop_null())
        is_empty = sequences.batch_lengths == 0
        if is_empty.any():
            filled = np.setdiff1d(np.arange(len(present)), _texts_of(np.flatnonzero(is_empty), offsets))
            errors |= dict.fromkeys(np.setdiff1d(present, present[filled]).tolist(), "no token in the text")
            sequences, offsets = self.encoder.encode(column.drop_null().take(pa.array(filled)))
            present = present[filled]
        return EncodedTexts(
            rows=len(column),
            sequences=sequences,
            offsets=offsets,
            row_of_text=present,
            errors=dict(sorted(errors.items())),
        )

    def score_encoded(self, encoded: EncodedTexts, go_on: GoOn = always, earlier: Scores | None = None) -> Scores:
        """A text is errored if one of its sequences cannot be scored, and missing if one of them was not reached."""
        row_of, offsets, sequences = encoded.row_of_text, encoded.offsets, len(encoded.sequences)
        known = None if earlier is None else np.repeat(earlier.known[row_of], np.diff(offsets))
        found = self.classifier.forward(
            encoded.sequences, lambda done: go_on(done * len(row_of) // max(1, sequences)), known
        )
        values = np.full((encoded.rows, self.outputs), np.nan, dtype=np.float32)
        if len(row_of):
            values[row_of] = self.combine(found.values, offsets)
        errors = dict(encoded.errors)
        for sequence, reason in found.errors.items():
            (text,) = _texts_of(np.array([sequence]), offsets)
            errors.setdefault(int(row_of[text]), reason)
        missing = np.setdiff1d(row_of[_texts_of(found.missing, offsets)], list(errors))
        values[[*errors, *missing.tolist()]] = np.nan
        scores = Scores(values=values, errors=dict(sorted(errors.items())), missing=missing)
        return scores if earlier is None else scores.filled_from(earlier)


def _texts_of(sequences: Counts, offsets: Counts) -> Indices:
    """The texts that these sequences belong to, each once."""
    return np.unique(np.searchsorted(offsets, sequences, side="right") - 1)
