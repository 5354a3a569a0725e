"""Zero-shot classification by a model of natural language inference: does a text entail "This example is about sport."?

Source: Yin, Hay and Roth, 2019, https://arxiv.org/abs/1909.00161, as in transformers' `zero-shot-classification` pipeline.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from worker.scoring.combined import Combine, CombinedClassifier, Logits, SequenceEncoder
from worker.scoring.errors import ModelError
from worker.scoring.passages import POOLS
from worker.scoring.scorer import Hypotheses
from worker.scoring.tokenizing.pairs import PairEncoder, PassagePairEncoder, TooLong
from worker.scoring.tokenizing.tokens import Counts, Sequences

if TYPE_CHECKING:
    from worker.scoring.sequence_classifier import SequenceClassifier


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
