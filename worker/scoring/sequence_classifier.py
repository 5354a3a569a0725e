"""The scorer that a transformers sequence classifier is."""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar, cast

import numpy as np
import torch

from worker.scoring.backends import Backend
from worker.scoring.combined import passage_classifier, zero_shot_classifier
from worker.scoring.device import device_name, device_use
from worker.scoring.forward import DeviceWork, Known, forward, measured_work
from worker.scoring.parity_trial import ParityTrial
from worker.scoring.rows import EncodedRows, GoOn, Scores, always
from worker.scoring.scorer import DeviceUse, ModelError, ModelShape, Place, Reading, Scorer, ScorerInfo
from worker.scoring.sharded.sharding import Sharded
from worker.scoring.shared_encoder import joined
from worker.scoring.tokenizing.tokenize import Texts, TextTokenizer, plain_texts
from worker.scoring.tokenizing.tokens import Sequences

Made = TypeVar("Made")
_MOST_MADE = 32  # readings and joint classifiers that a classifier remembers


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class SequenceClassifier:
    """A sequence classifier on a device. `encode` may run in one thread while another is in `score_encoded`."""

    model: str  # a Hub name or a folder
    revision: str | None  # of a Hub model, as it was asked for; a worker asks for a commit
    backend: Backend
    tokenizer: TextTokenizer
    device: torch.device
    dtype: str
    outputs: int
    max_batch_tokens: int
    parity: ParityTrial | None = None  # how its logits differ from those of the plain way, if that was tried
    refused_dtypes: tuple[str, ...] = ()  # tried before this one, and refused by the parity gate
    config: Any = None  # of transformers
    work: DeviceWork | None = (
        None  # that it has done since `metered`; of classifiers with one encoder, the first has it
    )
    _made: dict[Hashable, Any] = field(default_factory=dict, init=False)  # see `_remembered`

    def __repr__(self) -> str:
        """In one line: that of a dataclass would print the whole network."""
        named = {
            "revision": self.revision,
            "dtype": self.dtype,
            "device": str(self.device),
            "backend": self.backend.name,
        }
        told = "".join(f", {name}={value!r}" for name, value in named.items() if value)
        return f"SequenceClassifier({self.model!r}{told})"

    @property
    def info(self) -> ScorerInfo:
        return ScorerInfo(
            device=device_name(self.device),
            device_type=self.device.type,
            dtype=self.dtype,
            backend=self.backend.name,
            max_batch_tokens=self.max_batch_tokens,
            parity=self.parity,
            refused_dtypes=self.refused_dtypes,
            matmul_peak=self.work.peak if self.work else None,
        )

    def score(self, texts: Texts, go_on: GoOn = always) -> Scores:
        """The logits of `pipeline("text-classification", function_to_apply="none", truncation=True)`, in row order.

        `go_on` is called after each batch. If it returns False, the remaining rows are `missing`.
        """
        return self.score_encoded(self.encode(texts), go_on)

    def encode(self, texts: Texts, place: Place | None = None) -> EncodedRows:
        column = plain_texts(texts)
        present = np.flatnonzero(column.is_valid().to_numpy(zero_copy_only=False))
        tokens = self.tokenizer.encode(column.drop_null())
        errors = dict.fromkeys(np.setdiff1d(np.arange(len(column)), present).tolist(), "null text")
        if not tokens.lengths.all():
            errors |= dict.fromkeys(present[tokens.lengths == 0].tolist(), "no token in the text")
            filled = np.flatnonzero(tokens.lengths)
            tokens, present = tokens.take(filled), present[filled]
        return EncodedRows(rows=len(column), tokens=tokens, row_of_text=present, errors=errors)

    def score_encoded(self, encoded: EncodedRows, go_on: GoOn = always, earlier: Scores | None = None) -> Scores:
        """As `score`. Batches whose rows an `earlier`, ended scoring of the same rows has all are not computed again."""
        known = None if earlier is None else earlier.known[encoded.row_of_text]
        texts = self.forward(encoded.tokens, go_on, known)
        row_of = encoded.row_of_text
        values = np.full((encoded.rows, self.outputs), np.nan, dtype=np.float32)
        values[row_of] = texts.values
        errors = encoded.errors | {int(row_of[text]): reason for text, reason in texts.errors.items()}
        scores = Scores(values=values, errors=dict(sorted(errors.items())), missing=row_of[texts.missing])
        return scores if earlier is None else scores.filled_from(earlier)

    def forward(self, tokens: Sequences, go_on: GoOn = always, known: Known | None = None) -> Scores:
        """The logits of tokenised texts, in their order; `missing` are those not reached, and batches all `known`."""
        return forward(
            self.backend,
            tokens,
            outputs=self.outputs,
            max_batch_tokens=self.max_batch_tokens,
            go_on=go_on,
            known=known,
            work=self.work,
        )

    @property
    def encoding(self) -> Hashable:
        return self.tokenizer.identity

    def joined_with(self, others: Sequence[Scorer[Any]]) -> "SequenceClassifier | None":
        """The classifier with the outputs of all, if they have the same encoder. Found out once for the same classifiers."""
        classifiers = [self, *(other for other in others if isinstance(other, SequenceClassifier))]
        if len(classifiers) < 1 + len(others):
            return None
        return self._remembered(tuple(classifiers[1:]), lambda: joined(tuple(classifiers)))

    def with_parity(self, parity: ParityTrial) -> "SequenceClassifier":
        return replace(self, parity=parity)

    def metered(self, shape: ModelShape | None) -> "SequenceClassifier":
        if isinstance(self.backend, Sharded):  # the peak is that of one device
            return self
        return replace(self, work=measured_work(shape, self.dtype, self.device))

    @property
    def seconds_at_peak(self) -> float | None:
        return self.work.seconds_at_peak if self.work else None

    def device_use(self) -> DeviceUse:
        return device_use(self.device)

    def reading(self, reading: Reading) -> Scorer[Any]:
        """The scorer that reads texts so. It is made once for each reading, because that takes a fraction of a second."""
        return self._remembered(reading, lambda: _reading(self, reading))

    def _remembered(self, key: Hashable, make: Callable[[], Made]) -> Made:
        """What was made of this classifier. It is kept with the classifier, so that a notebook gets its memory back."""
        if key not in self._made:
            made = make()
            if len(self._made) == _MOST_MADE:
                del self._made[next(iter(self._made))]
            self._made[key] = made
        return cast("Made", self._made[key])


def _reading(classifier: SequenceClassifier, reading: Reading) -> Scorer[Any]:
    if reading.max_tokens:
        classifier = replace(classifier, tokenizer=_limited(classifier.tokenizer, reading.max_tokens))
    if reading.pairs:
        return replace(classifier, tokenizer=classifier.tokenizer.of_pairs())
    if reading.hypotheses:
        return zero_shot_classifier(classifier, reading.hypotheses, passages=reading.passages, pool=reading.pool)
    return classifier if reading.passages == "head" else passage_classifier(classifier, reading.passages, reading.pool)


def _limited(tokenizer: TextTokenizer, max_tokens: int) -> TextTokenizer:
    try:
        return tokenizer.limited_to(max_tokens)
    except ValueError as error:
        raise ModelError(f"{error} Choose another --max-tokens.") from error
