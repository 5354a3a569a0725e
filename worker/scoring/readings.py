"""Read each text as one or several sequences (passages, or text and hypotheses), and combine their logits.

Zero-shot classification asks a model of natural language inference whether a text entails "This example is sport."
Source: Yin, Hay and Roth, 2019, https://arxiv.org/abs/1909.00161, as in transformers' `zero-shot-classification` pipeline.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from shardsift.worker.scoring import Hypotheses, Indices, ModelError, Reading
from shardsift.worker.scoring.parity_trial import Logits
from shardsift.worker.scoring.tokenizing.frames import SequenceEncoder, TooLong
from shardsift.worker.scoring.tokenizing.tokenize import TextTokenizer
from shardsift.worker.scoring.tokenizing.tokens import Int64s, Tokens

Combine = Callable[[Logits, Int64s], Logits]  # (sequences, model's outputs), texts' offsets → (texts, outputs)


@dataclass(frozen=True, kw_only=True)
class TextReader:
    """A way to encode texts as sequences, and to combine the logits of a text's sequences into its outputs."""

    encoder: SequenceEncoder
    combine: Combine
    outputs: int


def text_reader(reading: Reading, tokenizer: TextTokenizer, outputs: int, *, model: str) -> TextReader:
    """Make a reader for texts in passages, with hypotheses, or both. `outputs` is the number of the model's outputs.

    The logits of a text's passages are pooled for each output, before any activation. With hypotheses, the model tests
    each hypothesis on each passage, and the reader has one output per hypothesis. Softmax over these outputs, or
    sigmoid with `multi_label`, gives the scores of transformers' zero-shot pipeline. Raises ModelError if the tokenizer
    does not support the reading, or if a hypothesis or stride is too long.
    """
    hypotheses, pool = reading.hypotheses, POOLS[reading.pool]
    try:
        encoder = tokenizer.sequences(reading.passages, hypotheses.texts if hypotheses else ())
    except TooLong as error:
        raise ModelError(f"The hypothesis {error} Choose a shorter label or template.") from error
    except ValueError as error:
        raise ModelError(f"The model {model} cannot read texts in passages: {error}.") from error
    if hypotheses is None:
        return TextReader(encoder=encoder, combine=pool, outputs=outputs)
    combine = _logit_of_each(hypotheses, pool)
    return TextReader(encoder=encoder, combine=combine, outputs=len(hypotheses.texts))


def one_sequence_each(tokenizer: TextTokenizer, outputs: int) -> TextReader:
    return TextReader(encoder=_Whole(tokenizer=tokenizer), combine=lambda logits, _offsets: logits, outputs=outputs)


def texts_with(sequences: Int64s, offsets: Int64s) -> Indices:
    """Return the indices of the texts to which these sequences belong, without duplicates."""
    return np.unique(np.searchsorted(offsets, sequences, side="right") - 1)


@dataclass(frozen=True, kw_only=True)
class _Whole:
    tokenizer: TextTokenizer

    def encode(self, texts: pa.Array) -> tuple[Tokens, Int64s]:
        return self.tokenizer.encode(texts), np.arange(len(texts) + 1)


def _max(logits: Logits, offsets: Int64s) -> Logits:
    highest: Logits = np.maximum.reduceat(logits, offsets[:-1], axis=0)
    return highest


def _mean(logits: Logits, offsets: Int64s) -> Logits:
    sums = np.add.reduceat(logits.astype(np.float64), offsets[:-1], axis=0)
    return (sums / np.diff(offsets)[:, None]).astype(np.float32)


POOLS: dict[str, Combine] = {"max": _max, "mean": _mean}


def _logit_of_each(hypotheses: Hypotheses, pool: Combine) -> Combine:
    """Make a function that turns the model's outputs for pairs of passage and hypothesis into one logit per label.

    The logit is the model's output for entailment. With `multi_label`, it is the difference between entailment and
    contradiction, because the sigmoid of this difference is the softmax over the two. `pool` combines the logits of a
    text's passages.
    """
    labels = len(hypotheses.texts)
    contradiction = -1 if hypotheses.entailment == 0 else 0  # as in the pipeline

    def combine(logits: Logits, offsets: Int64s) -> Logits:
        of_pairs = logits.reshape(offsets[-1] // labels, labels, -1)
        found: Logits = of_pairs[..., hypotheses.entailment]
        if hypotheses.multi_label:
            found = found - of_pairs[..., contradiction]
        return pool(found, offsets // labels)

    return combine
