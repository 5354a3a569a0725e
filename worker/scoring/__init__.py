"""The scoring core: turns texts into scores, in row order. Knows nothing of queues, Redis or outputs.

scorer = load.load_classifier("HuggingFaceFW/fineweb-edu-classifier")
scorer.score(["The mitochondrion is …"]).values  # float32, one row per text, one column per output

This file has the protocol of a scorer, which needs no torch. A package can offer its own scorer by an entry point of
the group `shardsift.scorers`; see `shardsift/fleet/scorers/kinds.py`.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypeVar, runtime_checkable

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from shardsift.worker.scoring.parity_trial import ParityTrial
from shardsift.worker.scoring.tokenizing.tokens import Int64s, Sequences

Indices = npt.NDArray[np.int64]
GoOn = Callable[[int], bool]  # takes the rows scored so far in the window; returns whether to score the next batch
_NONE = np.empty(0, dtype=np.int64)
_NO_ERRORS: Mapping[int, str] = {}
NOT_FINITE = "score is not finite"
Encoded = TypeVar("Encoded")


def always(rows: int) -> bool:
    """Return True, so that all batches are scored. This is the default `GoOn`."""
    return True


@dataclass(frozen=True, kw_only=True)
class EncodedRows:
    """The token ids of a window: one or more sequences for each row, or an error if the row has no tokens."""

    rows: int  # including those in `errors`
    sequences: Sequences
    offsets: Int64s  # text i has the sequences `offsets[i]:offsets[i + 1]`
    row_of_text: Indices  # shape (texts,), without the rows in `errors`
    errors: dict[int, str]  # row → why it has no sequence


def token_count(encoded: object) -> int:
    """Count the tokens of EncodedRows, by `batch_lengths`. Returns 0 for what a scorer without tokens has encoded."""
    return int(encoded.sequences.batch_lengths.sum()) if isinstance(encoded, EncodedRows) else 0


@dataclass(frozen=True, kw_only=True)
class Scores:
    """Raw float32 logits of shape (rows, outputs). Rows in `errors` and `missing` are NaN."""

    values: npt.NDArray[np.float32]
    errors: dict[int, str] = field(default_factory=dict)  # row → reason
    missing: Indices = field(default_factory=lambda: _NONE)  # rows whose batch was not reached before a stop
    in_float32: int = 0  # rows that overflow in float16 and were scored again

    @property
    def has_all_rows(self) -> bool:
        return not len(self.missing)

    @property
    def known(self) -> npt.NDArray[np.bool_]:
        """A mask of the rows that are scored or errored, shape (rows,)."""
        known = np.ones(len(self.values), dtype=np.bool_)
        known[self.missing] = False
        return known

    def with_errors(self, errors: Mapping[int, str] = _NO_ERRORS) -> "Scores":
        """Return a copy with these errors added. Scored rows with a score that is not finite also get an error."""
        odd = np.logical_not(np.isfinite(self.values).all(axis=1))
        odd[self.missing] = False
        not_finite = dict.fromkeys(np.flatnonzero(odd).tolist(), NOT_FINITE)
        reasons = not_finite | self.errors | dict(errors)
        values = self.values.copy()
        values[list(reasons)] = np.nan
        return replace(self, values=values, errors=dict(sorted(reasons.items())))

    def filled_from(self, earlier: "Scores") -> "Scores":
        """Return a copy that takes missing rows from an earlier scoring of the same window, if it has them."""
        found = self.missing[earlier.known[self.missing]]
        values = self.values.copy()
        values[found] = earlier.values[found]
        errors = self.errors | {row: earlier.errors[row] for row in found.tolist() if row in earlier.errors}
        missing = np.setdiff1d(self.missing, found)
        again = self.in_float32 + earlier.in_float32
        return replace(self, values=values, errors=dict(sorted(errors.items())), missing=missing, in_float32=again)


def null_texts(texts: pa.Array) -> dict[int, str]:
    return dict.fromkeys(np.flatnonzero(texts.is_null().to_numpy(zero_copy_only=False)).tolist(), "null text")


@dataclass(frozen=True, kw_only=True)
class ScorerInfo:
    """The device and settings of a scorer, for logs and receipts."""

    device: str = "cpu"  # name, such as NVIDIA H100 80GB HBM3
    device_type: str = "cpu"  # torch's name for the kind of device
    dtype: str = "float32"
    backend: str = "plain"
    max_batch_tokens: int = 0  # 0 if batches are not counted in tokens
    matmul_peak: float | None = None  # operations per second of the device on the model's matrices, if measured
    parity: ParityTrial | None = None  # comparison with the plain model's logits, if made
    refused_dtypes: tuple[str, ...] = ()  # formats that the parity gate refused before this one
    faulty_ways: tuple[str, ...] = ()  # ways to run batches, such as graphed, that ended an earlier process


class Scorer(Protocol[Encoded]):
    """Scores the rows of a window in two steps, so that one window is encoded while another is on the device.

    Both steps must depend only on their arguments: the same texts must give the same scores in any worker and any
    order, because otherwise a resumed shard would publish different bytes. They raise MemoryError if memory may be free
    later, DeviceFault if the process must be replaced, and ShardError if the shard cannot be scored at all.
    """

    @property
    def info(self) -> ScorerInfo: ...

    def encode(self, texts: pa.LargeStringArray) -> Encoded:
        """Prepare the texts of a window. A row without a text is null. Runs in a thread of its own."""

    def score_encoded(self, encoded: Encoded, go_on: GoOn, earlier: Scores | None) -> Scores:
        """Compute the raw outputs of each row. Rows that cannot be scored get a reason in `errors`.

        After each batch, calls `go_on` with the number of rows done so far. If it returns False, stops, and the other
        rows are `missing`. `earlier` is the result of an interrupted call for the same rows. Only one thread at a time
        calls this method.
        """


@dataclass(frozen=True, kw_only=True)
class Hypotheses:
    """The hypotheses of a zero-shot scoring, one for each label. The scorer has one output for each label."""

    texts: tuple[str, ...]
    entailment: int  # the model's output for "the text entails the hypothesis"
    multi_label: bool  # the logits are for sigmoid; otherwise for softmax


@dataclass(frozen=True, kw_only=True)
class Reading:
    """The way in which a scorer reads texts. The default values are the model's own way."""

    max_tokens: int | None = None  # of a text or passage, with special tokens
    passages: str = "head"  # head+tail, head+middle+tail, stride:N, finepdfs
    pool: str = "max"  # how to combine the logits of a text's passages: max or mean
    hypotheses: Hypotheses | None = None
    pairs: bool = False  # the texts are pairs; see `shardsift/fleet/run/text.py`


@runtime_checkable
class ModelScorer(Protocol):
    """A scorer whose model can read texts in several ways, and can share work with other models."""

    def reading(self, reading: Reading) -> Scorer[Any]:
        """Make a scorer with this reading. Raises ModelError if the model does not support it."""

    def launch(self, encoded: Any, go_on: GoOn, earlier: Scores | None) -> Callable[[], Scores]:
        """Give all batches to the device. Returns a function that waits for the scores: those of `score_encoded`.

        Another thread may call that function, and the next shard's texts may be launched before it is called.
        """

    @property
    def encoding(self) -> Hashable:
        """A key that identifies how texts are encoded.

        Scorers with equal keys can score each other's encoded texts.
        """

    def joined_with(self, others: Sequence[Scorer[Any]]) -> Scorer[Any] | None:
        """Make one scorer that gives the outputs of this one and `others` side by side.

        Returns None if joining them would save no work.
        """


@dataclass(frozen=True, kw_only=True)
class DeviceUse:
    """The use of a device by all processes, as reported by its driver."""

    memory_share: float | None = None  # share of its memory in use
    busy_share: float | None = None  # share of the last second in which it computed anything


class ModelShape(Protocol):
    """The sizes that determine a model's work. Hashable, so that the matmul peak is measured once for each shape."""

    def __hash__(self) -> int: ...

    @property
    def matrices(self) -> tuple[tuple[int, int, int], ...]:
        """The matrices of one layer, as (rows, columns, count)."""

    def flops(self, lengths: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        """Return the number of floating-point operations for each text, by its length in tokens."""


@runtime_checkable
class MeteredScorer(Protocol):
    """A scorer that counts its work, to compare it with the matmul peak of its device (see `peak.py`)."""

    config: Any  # the transformers config, if there is one

    def metered(self, shape: ModelShape | None) -> "Scorer[Any]":
        """Return a scorer that counts its work from now on. `shape` is None if the model's layers are unknown.

        Takes up to a few seconds, because it measures the device's matmul peak.
        """

    @property
    def seconds_at_peak(self) -> float | None:
        """The seconds that all batches so far would have taken at the matmul peak. None if unknown. Thread-safe."""

    def device_use(self) -> DeviceUse:
        """Read the use of the device. Thread-safe."""


# Errors of loading and running a model.


class ModelError(Exception):
    """The model cannot be served. The message says why and what to do."""


class NoRoom(ModelError):
    """The model does not fit on the device beside the loaded ones."""


class ParityError(ModelError):
    """The optimised model does not reproduce the plain model's scores."""


class DeviceFault(RuntimeError):
    """The device, its driver or a helper process failed. This process must be replaced."""


class DeviceLost(DeviceFault):
    """The device failed during the trial of a way to run batches. The next process skips this way."""


Floats = npt.NDArray[np.float32]


def apply(function: str, logits: Floats) -> Floats:
    """Turn logits into scores by `function`: sigmoid, softmax, or none, which returns them unchanged.

    Logits and scores have shape (rows, outputs). `exp` is computed in float64. Its last bits depend on the CPU, and
    rounding to float32 drops them, so stored logits give the same scores on every CPU.
    """
    if function == "none":
        return logits
    exact = logits.astype(np.float64)
    if function == "sigmoid":
        with np.errstate(over="ignore"):  # a logit below -709 overflows to 1 / (1 + inf) = 0, the correct score
            scores = 1 / (1 + np.exp(-exact))
    else:
        powers = np.exp(exact - exact.max(axis=1, keepdims=True))
        scores = powers / powers.sum(axis=1, keepdims=True)
    return scores.astype(np.float32)
