"""The scorer for transformers sequence classifiers."""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar, cast

import numpy as np
import pyarrow as pa
import torch

from shardsift.worker.scoring import (
    NOT_FINITE,
    DeviceUse,
    EncodedRows,
    GoOn,
    Indices,
    ModelError,
    ModelShape,
    Reading,
    Scorer,
    ScorerInfo,
    Scores,
    always,
    null_texts,
)
from shardsift.worker.scoring.backends import Backend
from shardsift.worker.scoring.backends.graphed import Graphed
from shardsift.worker.scoring.backends.in_float32 import InFloat32
from shardsift.worker.scoring.device import device_name, device_use
from shardsift.worker.scoring.forward import launch
from shardsift.worker.scoring.parity_trial import ParityTrial, sample_texts
from shardsift.worker.scoring.peak import DeviceWork, measured_work
from shardsift.worker.scoring.readings import TextReader, one_sequence_each, text_reader, texts_with
from shardsift.worker.scoring.sharded import Sharded
from shardsift.worker.scoring.shared_encoder import joint_backend
from shardsift.worker.scoring.tokenizing.tokenize import AnyTexts, TextTokenizer, plain_texts
from shardsift.worker.scoring.tokenizing.tokens import Sequences

Made = TypeVar("Made")
_MOST_MADE = 32  # readings and joint classifiers that a classifier remembers
_PROOF_TEXTS = 8


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class SequenceClassifier:
    """A sequence classifier on a device. `encode` may run in one thread while another is in `score_encoded`."""

    model: str  # a Hub name or a folder
    revision: str | None  # of a Hub model, as requested; a worker requests a commit
    backend: Backend
    in_float32: InFloat32 | None = None  # for texts that overflow in float16
    tokenizer: TextTokenizer
    device: torch.device
    dtype: str
    outputs: int  # of the model
    max_batch_tokens: int
    parity: ParityTrial | None = None  # comparison with the plain model's logits, if made
    refused_dtypes: tuple[str, ...] = ()  # formats that the parity gate refused before this one
    faulty_ways: tuple[str, ...] = ()  # ways to run batches, such as graphed, that ended an earlier process
    config: Any = None  # the transformers config
    work: DeviceWork | None = None  # since `metered`; for classifiers that share an encoder, counted by the first
    reader: TextReader | None = None  # None: each text is one sequence
    _made: dict[Hashable, Any] = field(default_factory=dict, init=False)  # see `_remembered`

    def __repr__(self) -> str:
        named = {
            "revision": self.revision,
            "dtype": self.dtype,
            "device": str(self.device),
            "backend": self.backend.name,
        }
        shown = "".join(f", {name}={value!r}" for name, value in named.items() if value)
        return f"SequenceClassifier({self.model!r}{shown})"

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
            faulty_ways=self.faulty_ways,
            matmul_peak=self.work.peak if self.work else None,
        )

    def score(self, texts: AnyTexts, go_on: GoOn = always) -> Scores:
        """Compute the logits of each text, in order.

        They are the scores of `pipeline("text-classification", function_to_apply="none", truncation=True)`. Calls
        `go_on` after each batch. If it returns False, stops, and the remaining rows are `missing` in the result.
        """
        return self.score_encoded(self.encode(texts), go_on)

    def encode(self, texts: AnyTexts) -> EncodedRows:
        """Encode the texts as sequences. Null texts, and texts without tokens, are errored."""
        column = plain_texts(texts)
        errors = null_texts(column)
        present = np.setdiff1d(np.arange(len(column)), list(errors))
        found = column.drop_null()
        sequences, offsets = self._reader.encoder.encode(found)
        empty = texts_with(np.flatnonzero(sequences.batch_lengths == 0), offsets)
        if len(empty):
            errors |= dict.fromkeys(present[empty].tolist(), "no token in the text")
            filled = np.setdiff1d(np.arange(len(present)), empty)
            present = present[filled]
            sequences, offsets = self._reader.encoder.encode(found.take(pa.array(filled)))
        return EncodedRows(
            rows=len(column),
            sequences=sequences,
            offsets=offsets,
            row_of_text=present,
            errors=dict(sorted(errors.items())),
        )

    def score_encoded(self, encoded: EncodedRows, go_on: GoOn = always, earlier: Scores | None = None) -> Scores:
        """Score encoded rows, until `go_on` returns False.

        `earlier` has the scores of an interrupted call for the same rows. A batch is skipped if `earlier` has the rows
        of all its sequences. A row is errored if one of its sequences cannot be scored. Otherwise, if one of its
        sequences was skipped or not reached, the row is taken from `earlier`. It is missing if `earlier` lacks it, too.
        """
        return self.launch(encoded, go_on, earlier)()

    def launch(self, encoded: EncodedRows, go_on: GoOn, earlier: Scores | None) -> Callable[[], Scores]:
        row_of, offsets, sequences = encoded.row_of_text, encoded.offsets, len(encoded.sequences)
        known = None if earlier is None else np.repeat(earlier.known[row_of], np.diff(offsets))
        logits = launch(
            self.backend,
            encoded.sequences,
            outputs=self.outputs,
            max_batch_tokens=self.max_batch_tokens,
            vocabulary=getattr(self.config, "vocab_size", None),
            go_on=lambda done: go_on(done * len(row_of) // max(1, sequences)),
            known=known,
            work=self.work,
        )
        return lambda: self._of_rows(encoded, logits(), earlier)

    def _without_overflow(self, sequences: Sequences, found: Scores) -> tuple[Scores, Indices]:
        """Score the sequences that overflowed in float16 again, in float32 and one at a time.

        `found` has the scores of all sequences. Returns them with the new scores, and the indices of the sequences that
        now have finite scores.
        """
        odd = np.array([one for one, reason in found.errors.items() if reason == NOT_FINITE], dtype=np.int64)
        if self.in_float32 is None or not len(odd):
            return found, odd[:0]
        again = launch(self.in_float32, sequences.take(odd), outputs=self.outputs, max_batch_tokens=1)()
        values = found.values.copy()
        values[odd] = again.values
        scored = np.delete(odd, list(again.errors))
        errors = {one: reason for one, reason in found.errors.items() if one not in scored}
        return replace(found, values=values, errors=errors), scored

    def _of_rows(self, encoded: EncodedRows, found: Scores, earlier: Scores | None) -> Scores:
        row_of, offsets = encoded.row_of_text, encoded.offsets
        found, again = self._without_overflow(encoded.sequences, found)
        values = np.full((encoded.rows, self._reader.outputs), np.nan, dtype=np.float32)
        if len(row_of):
            values[row_of] = self._reader.combine(found.values, offsets)
        errors = dict(encoded.errors)
        for sequence, reason in found.errors.items():
            (text,) = texts_with(np.array([sequence]), offsets)
            errors.setdefault(int(row_of[text]), reason)
        missing = np.setdiff1d(row_of[texts_with(found.missing, offsets)], list(errors))
        values[missing] = np.nan
        in_float32 = len(texts_with(again, offsets))
        scores = Scores(values=values, errors=errors, missing=missing, in_float32=in_float32).with_errors()
        return scores if earlier is None else scores.filled_from(earlier)

    def with_budget(self, max_batch_tokens: int) -> "SequenceClassifier":
        """Return a copy with another token budget per batch. A graph is compiled again, because it has a fixed size."""
        backend = self.backend.of_size(max_batch_tokens) if isinstance(self.backend, Graphed) else self.backend
        return replace(self, max_batch_tokens=max_batch_tokens, backend=backend)

    @property
    def _reader(self) -> TextReader:
        return self.reader or one_sequence_each(self.tokenizer, self.outputs)

    @property
    def encoding(self) -> Hashable:
        return self.tokenizer.identity

    def joined_with(self, others: Sequence[Scorer[Any]]) -> "SequenceClassifier | None":
        """Join this classifier with others. Returns None if encoders or tokenizers differ.

        The result is cached, because the comparison takes seconds.
        """
        classifiers = (self, *(other for other in others if isinstance(other, SequenceClassifier)))
        if len(classifiers) < 1 + len(others):
            return None
        return self._remembered(classifiers[1:], lambda: _joined(classifiers))

    def metered(self, shape: ModelShape | None) -> "SequenceClassifier":
        if isinstance(self.backend, Sharded):  # the peak can only be measured for one device
            return self
        return replace(self, work=measured_work(shape, self.dtype, self.device))

    @property
    def seconds_at_peak(self) -> float | None:
        return self.work.seconds_at_peak if self.work else None

    def device_use(self) -> DeviceUse:
        return device_use(self.device)

    def reading(self, reading: Reading) -> "SequenceClassifier":
        """Return a copy that reads texts as `reading` says. Cached, because it takes a fraction of a second to make."""
        return self._remembered(reading, lambda: _reading(self, reading))

    def _remembered(self, key: Hashable, make: Callable[[], Made]) -> Made:
        if key not in self._made:
            made = make()
            if len(self._made) == _MOST_MADE:
                del self._made[next(iter(self._made))]
            self._made[key] = made
        return cast("Made", self._made[key])


def _reading(classifier: SequenceClassifier, reading: Reading) -> SequenceClassifier:
    tokenizer, reader = classifier.tokenizer, None
    if reading.max_tokens:
        try:
            tokenizer = tokenizer.limited_to(reading.max_tokens)
        except ValueError as error:
            raise ModelError(f"{error} Choose another --max-tokens.") from error
    if reading.pairs:
        tokenizer = tokenizer.of_pairs()
    elif reading.hypotheses or reading.passages != "head":
        reader = text_reader(reading, tokenizer, classifier.outputs, model=classifier.model)
    return replace(classifier, tokenizer=tokenizer, reader=reader)


def _joined(classifiers: Sequence[SequenceClassifier]) -> SequenceClassifier | None:
    """Join classifiers with the same encoder. Returns None if their encoders or tokenizers differ.

    Weights are compared tensor by tensor, and sample texts must get equal scores to the last bit. After this, the
    classifiers share one copy of the encoder's weights.
    """
    classifiers = [_without_graph(classifier) for classifier in classifiers]
    first, *others = classifiers
    if any(_conditions(other) != _conditions(first) for other in others):
        return None
    backend = joint_backend([classifier.backend for classifier in classifiers])
    if backend is None:
        return None
    joint = replace(
        first,
        model=" + ".join(classifier.model for classifier in classifiers),
        revision=None,
        backend=backend,
        in_float32=first.in_float32 and InFloat32(backend.backends),
        outputs=sum(classifier.outputs for classifier in classifiers),
        max_batch_tokens=min(classifier.max_batch_tokens for classifier in classifiers),
        parity=None,
    )
    texts = sample_texts(_PROOF_TEXTS)
    alone = [replace(one, max_batch_tokens=joint.max_batch_tokens).score(texts).values for one in classifiers]
    if not np.array_equal(joint.score(texts).values, np.hstack(alone)):
        return None
    backend.hold_once()
    return joint


def _without_graph(classifier: SequenceClassifier) -> SequenceClassifier:
    """Return the classifier with packed instead of graphed batches, because a graph holds only one model."""
    backend = classifier.backend
    return replace(classifier, backend=backend.packed) if isinstance(backend, Graphed) else classifier


def _conditions(classifier: SequenceClassifier) -> tuple[object, ...]:
    return classifier.encoding, classifier.dtype, classifier.device, type(classifier.backend)
