"""Zero-shot classification by a model of natural language inference: does a text entail "This example is about sport."?

Source: Yin, Hay and Roth, 2019, https://arxiv.org/abs/1909.00161, as in transformers' `zero-shot-classification` pipeline.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from worker.scoring.combined import CombinedClassifier, Logits
from worker.scoring.errors import ModelError
from worker.scoring.scorer import Hypotheses
from worker.scoring.tokenizing.pairs import PairEncoder
from worker.scoring.tokenizing.tokens import Counts, Sequences

if TYPE_CHECKING:
    from worker.scoring.sequence_classifier import SequenceClassifier


def zero_shot_classifier(classifier: "SequenceClassifier", hypotheses: Hypotheses) -> CombinedClassifier:
    """A classifier with one output for each hypothesis. Raises ModelError for one that is too long for the model.

    The outputs are logits. Softmax over them gives the pipeline's scores or, if `multi_label`, sigmoid does.
    """
    try:
        pairs = classifier.tokenizer.paired_with(hypotheses.texts)
    except ValueError as error:
        raise ModelError(f"The hypothesis {error} Choose a shorter label or template.") from error
    labels, entailment = len(hypotheses.texts), hypotheses.entailment
    contradiction = -1 if entailment == 0 else 0  # as the pipeline chooses it
    return CombinedClassifier(
        classifier=classifier,
        encoder=_TextsWithHypotheses(pairs=pairs, labels=labels),
        combine=_LogitOfEach(
            labels=labels, entailment=entailment, contradiction=contradiction if hypotheses.multi_label else None
        ),
        outputs=labels,
    )


@dataclass(frozen=True, kw_only=True)
class _TextsWithHypotheses:
    """Each text with each hypothesis."""

    pairs: PairEncoder
    labels: int

    def encode(self, texts: pa.LargeStringArray) -> tuple[Sequences, Counts]:
        return self.pairs.encode(texts), self.labels * np.arange(len(texts) + 1)


@dataclass(frozen=True, kw_only=True)
class _LogitOfEach:
    """The logit of each label from the outputs of its pair.

    The softmax over entailment and contradiction is the sigmoid of their difference.
    """

    labels: int
    entailment: int  # output of the model
    contradiction: int | None  # None if the labels are compared with each other

    def __call__(self, logits: Logits, offsets: Counts) -> Logits:
        of_pairs = logits.reshape(len(offsets) - 1, self.labels, -1)
        entailed: Logits = of_pairs[..., self.entailment]
        return entailed if self.contradiction is None else entailed - of_pairs[..., self.contradiction]
