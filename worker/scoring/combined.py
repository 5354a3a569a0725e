"""Score each text by several sequences, and combine their logits: passages of a long text, or a text with several hypotheses."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from worker.scoring.rows import GoOn, Indices, Scores, always
from worker.scoring.scorer import Hypotheses, ModelError, Place, ScorerInfo
from worker.scoring.tokenizing.pairs import PairEncoder, PassagePairEncoder, TooLong
from worker.scoring.tokenizing.tokenize import Texts, plain_texts
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


# Score long texts in passages, and pool the logits of each text's passages.


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


# Zero-shot classification by a model of natural language inference: does a text entail "This example is about sport."?
#
# Source: Yin, Hay and Roth, 2019, https://arxiv.org/abs/1909.00161, as in transformers' `zero-shot-classification` pipeline.


def zero_shot_classifier(
    classifier: "SequenceClassifier", hypotheses: Hypotheses, *, passages: str = "head", pool: str = "max"
) -> CombinedClassifier:
    """A classifier with one output for each hypothesis. Raises ModelError for one that is too long for the model.

    The outputs are logits. Softmax over them gives the pipeline's scores or, if `multi_label`, sigmoid does. Other
    `passages` than the head are each judged by all hypotheses, and the logits of a hypothesis are pooled over a text's.
    """
    labels, entailment = len(hypotheses.texts), hypotheses.entailment
    contradiction = -1 if entailment == 0 else 0  # as the pipeline chooses it
    return CombinedClassifier(
        classifier=classifier,
        encoder=_encoder(classifier, hypotheses.texts, passages),
        combine=_LogitOfEach(
            labels=labels,
            entailment=entailment,
            contradiction=contradiction if hypotheses.multi_label else None,
            pool=POOLS[pool],
        ),
        outputs=labels,
    )


def _encoder(classifier: "SequenceClassifier", hypotheses: tuple[str, ...], passages: str) -> SequenceEncoder:
    try:
        if passages == "head":
            return _TextsWithHypotheses(pairs=classifier.tokenizer.paired_with(hypotheses), labels=len(hypotheses))
        pairs = classifier.tokenizer.in_passages_with(hypotheses, passages)
        return _PassagesWithHypotheses(pairs=pairs, labels=len(hypotheses))
    except TooLong as error:
        raise ModelError(f"The hypothesis {error} Choose a shorter label or template.") from error
    except ValueError as error:
        raise ModelError(f"The model {classifier.model} cannot read texts in passages: {error}.") from error


@dataclass(frozen=True, kw_only=True)
class _TextsWithHypotheses:
    """Each text with each hypothesis."""

    pairs: PairEncoder
    labels: int

    def encode(self, texts: pa.LargeStringArray) -> tuple[Sequences, Counts]:
        return self.pairs.encode(texts), self.labels * np.arange(len(texts) + 1)


@dataclass(frozen=True, kw_only=True)
class _PassagesWithHypotheses:
    """Each passage of a text with each hypothesis."""

    pairs: PassagePairEncoder
    labels: int

    def encode(self, texts: pa.LargeStringArray) -> tuple[Sequences, Counts]:
        pairs, offsets = self.pairs.encode(texts)
        return pairs, self.labels * offsets


@dataclass(frozen=True, kw_only=True)
class _LogitOfEach:
    """The logit of each label from the outputs of its pairs, pooled over the passages of a text.

    The softmax over entailment and contradiction is the sigmoid of their difference, so that is the logit if each label is
    judged by itself.
    """

    labels: int
    entailment: int  # output of the model
    contradiction: int | None  # None if the labels are compared with each other
    pool: Combine

    def __call__(self, logits: Logits, offsets: Counts) -> Logits:
        of_pairs = logits.reshape(offsets[-1] // self.labels, self.labels, -1)
        found: Logits = of_pairs[..., self.entailment]
        if self.contradiction is not None:
            found = found - of_pairs[..., self.contradiction]
        return self.pool(found, offsets // self.labels)
