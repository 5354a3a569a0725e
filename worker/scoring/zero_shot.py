"""Zero-shot classification by a model of natural language inference: does a text entail "This example is about sport."?

Source: Yin, Hay and Roth, 2019, https://arxiv.org/abs/1909.00161, as in transformers' `zero-shot-classification` pipeline.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from worker.scoring.errors import ModelError
from worker.scoring.rows import GoOn, Indices, Scores, always
from worker.scoring.scorer import Place, ScorerInfo
from worker.scoring.tokenizing.pairs import PairEncoder
from worker.scoring.tokenizing.texts import plain_texts
from worker.scoring.tokenizing.tokens import Sequences

if TYPE_CHECKING:
    from worker.scoring.sequence_classifier import SequenceClassifier

Logits = npt.NDArray[np.float32]


@dataclass(frozen=True, kw_only=True)
class EncodedPairs:
    """Each text of a window with each hypothesis: the pairs of the first text, then those of the next."""

    rows: int  # including those in `errors`
    pairs: Sequences
    row_of_text: Indices
    errors: dict[int, str]  # row → why it is not in `pairs`


@dataclass(frozen=True, kw_only=True)
class ZeroShotClassifier:
    """Scores the hypotheses of one label set. The outputs of a text are a logit for each label.

    With one logit for each label of several, softmax over them gives the pipeline's scores. If `contradiction` is an output of
    the model, the logits are the entailment's minus the contradiction's, and sigmoid gives the pipeline's scores: then each
    label is judged by itself (`multi_label`).
    """

    classifier: "SequenceClassifier"
    hypotheses: int
    encoder: PairEncoder
    entailment: int  # output of the model
    contradiction: int | None

    @property
    def info(self) -> ScorerInfo:
        return self.classifier.info

    def encode(self, texts: pa.LargeStringArray, place: Place | None = None) -> EncodedPairs:
        column = plain_texts(texts)
        present = np.flatnonzero(column.is_valid().to_numpy(zero_copy_only=False))
        errors = dict.fromkeys(np.setdiff1d(np.arange(len(column)), present).tolist(), "null text")
        pairs = self.encoder.encode(column.drop_null())
        return EncodedPairs(rows=len(column), pairs=pairs, row_of_text=present, errors=errors)

    def score_encoded(self, encoded: EncodedPairs, go_on: GoOn = always, earlier: Scores | None = None) -> Scores:
        """A text is missing if one of its pairs was not reached, and errored if one of them cannot be scored."""
        row_of, each = encoded.row_of_text, self.hypotheses
        known = None if earlier is None else np.repeat(earlier.known[row_of], each)
        pairs = self.classifier.forward(encoded.pairs, lambda done: go_on(done // each), known)
        values = np.full((encoded.rows, each), np.nan, dtype=np.float32)
        values[row_of] = self._logits_of_labels(pairs.values.reshape(len(row_of), each, -1))
        errors = dict(encoded.errors)
        for pair, reason in pairs.errors.items():
            errors.setdefault(int(row_of[pair // each]), reason)
        missing = np.setdiff1d(row_of[np.unique(pairs.missing // each)], list(errors))
        values[[*errors, *missing.tolist()]] = np.nan
        scores = Scores(values=values, errors=dict(sorted(errors.items())), missing=missing)
        return scores if earlier is None else scores.filled_from(earlier)

    def _logits_of_labels(self, logits: Logits) -> Logits:
        """From the model's outputs, shape (texts, labels, outputs), to one for each label, shape (texts, labels)."""
        entailed: Logits = logits[..., self.entailment]
        return entailed if self.contradiction is None else entailed - logits[..., self.contradiction]


def zero_shot_classifier(
    classifier: "SequenceClassifier", hypotheses: Sequence[str], *, entailment: int, multi_label: bool
) -> ZeroShotClassifier:
    """The classifier of these hypotheses. Raises ModelError for one that is too long for the model."""
    try:
        encoder = classifier.tokenizer.paired_with(hypotheses)
    except ValueError as error:
        raise ModelError(f"The hypothesis {error} Choose a shorter label or template.") from error
    contradiction = -1 if entailment == 0 else 0  # as the pipeline chooses it
    return ZeroShotClassifier(
        classifier=classifier,
        hypotheses=len(hypotheses),
        encoder=encoder,
        entailment=entailment,
        contradiction=contradiction if multi_label else None,
    )
