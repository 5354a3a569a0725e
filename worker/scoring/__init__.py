"""The scoring core: turns texts into scores, in row order. Knows nothing of queues, Redis or the Hub.

scorer = load.load_classifier("HuggingFaceFW/fineweb-edu-classifier")
scorer.score(["The mitochondrion is …"]).values  # float32, one row per text, one column per output

Here is the protocol of a scorer, which needs no torch. A package offers a scorer of its own by an entry point of the group
`shardsift.scorers`; see `shardsift/fleet/scorers/kinds.py`.
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
Encoded = TypeVar("Encoded")


def always(rows: int) -> bool:
    """A `GoOn` that never stops."""
    return True


@dataclass(frozen=True, kw_only=True)
class EncodedRows:
    """The token ids of a window: one or more sequences of each text. Rows without a token are in `errors` only."""

    rows: int  # including those in `errors`
    sequences: Sequences
    offsets: Int64s  # of each text in `sequences`, and the end of the last
    row_of_text: Indices
    errors: dict[int, str]  # row → why it has no sequence


def token_count(encoded: object) -> int:
    """The tokens that go through the model, without padding. 0 if the scorer has none."""
    return int(encoded.sequences.batch_lengths.sum()) if isinstance(encoded, EncodedRows) else 0


@dataclass(frozen=True, kw_only=True)
class Scores:
    """Raw float32 logits of shape (rows, outputs). Rows in `errors` and `missing` are NaN."""

    values: npt.NDArray[np.float32]
    errors: dict[int, str] = field(default_factory=dict)  # row → reason
    missing: Indices = field(default_factory=lambda: _NONE)  # rows whose batch was not reached

    @property
    def has_all_rows(self) -> bool:
        return not len(self.missing)

    @property
    def known(self) -> npt.NDArray[np.bool_]:
        """Mark the rows that are scored or errored, shape (rows,)."""
        known = np.ones(len(self.values), dtype=np.bool_)
        known[self.missing] = False
        return known

    def with_errors(self, errors: Mapping[int, str] = _NO_ERRORS) -> "Scores":
        """Add errors, and one for each row whose scores are not finite numbers."""
        odd = np.logical_not(np.isfinite(self.values).all(axis=1))
        odd[self.missing] = False
        not_finite = dict.fromkeys(np.flatnonzero(odd).tolist(), "score is not finite")
        reasons = not_finite | self.errors | dict(errors)
        values = self.values.copy()
        values[list(reasons)] = np.nan
        return replace(self, values=values, errors=dict(sorted(reasons.items())))

    def filled_from(self, earlier: "Scores") -> "Scores":
        """Take missing rows from an earlier scoring of the same rows, if it has them."""
        found = self.missing[earlier.known[self.missing]]
        values = self.values.copy()
        values[found] = earlier.values[found]
        errors = self.errors | {row: earlier.errors[row] for row in found.tolist() if row in earlier.errors}
        missing = np.setdiff1d(self.missing, found)
        return replace(self, values=values, errors=dict(sorted(errors.items())), missing=missing)


def null_texts(texts: pa.Array) -> dict[int, str]:
    """Find the rows without a text: row → reason."""
    return dict.fromkeys(np.flatnonzero(texts.is_null().to_numpy(zero_copy_only=False)).tolist(), "null text")


@dataclass(frozen=True, kw_only=True)
class ScorerInfo:
    """The device and settings with which a scorer computes: for the log, and for the receipts of what it scored."""

    device: str = "cpu"  # its name, such as NVIDIA H100 80GB HBM3
    device_type: str = "cpu"  # its kind, as torch names it
    dtype: str = "float32"
    backend: str = "plain"
    max_batch_tokens: int = 0  # 0 if batches are not counted in tokens
    matmul_peak: float | None = None  # operations per second of this device on the model's matrices, if measured
    parity: ParityTrial | None = None  # how its logits differ from those of the plain way, if that was tried
    refused_dtypes: tuple[str, ...] = ()  # tried before this one, and refused by the parity gate


@dataclass(frozen=True, kw_only=True)
class Place:
    """The origin of texts: consecutive rows of a shard, from `first_row` on. Most scorers do not need it."""

    shard: str
    source_identity: str  # of the shard's file: it changes with the content
    first_row: int
    text_digests: tuple[str, ...] = ()  # of the window's texts, one for each scoring of the run


class Scorer(Protocol[Encoded]):
    """Scores the rows of a window in two steps, so that one window is encoded while another is on the device.

    Both steps depend on their arguments only: the same texts give the same scores in any worker and any order, or a resumed
    shard would publish other bytes. They raise MemoryError if memory may be free later, DeviceFault if the process must be
    replaced, and ShardError if the shard cannot be scored at all.
    """

    @property
    def info(self) -> ScorerInfo: ...

    def encode(self, texts: pa.LargeStringArray, place: Place) -> Encoded:
        """Prepare the texts of a window; null stands for a row without one. Runs in a thread of its own."""

    def score_encoded(self, encoded: Encoded, go_on: GoOn, earlier: Scores | None) -> Scores:
        """The raw outputs of each row. Rows that cannot be scored get a reason in `errors`. Shards run in threads, one at a time.

        Calls `go_on` with the rows done so far after each batch, and stops if it returns False: the rest is `missing`.
        `earlier` is what an interrupted call for the same rows returned; its rows need not be computed again.
        """


@dataclass(frozen=True, kw_only=True)
class Hypotheses:
    """The labels of a zero-shot scoring. Each label is an output of the scorer."""

    texts: tuple[str, ...]
    entailment: int  # the model's output for "the text entails the hypothesis"
    multi_label: bool  # the logits are for sigmoid; otherwise for softmax


@dataclass(frozen=True, kw_only=True)
class Reading:
    """A way to read texts other than the model's default."""

    max_tokens: int | None = None  # of a text or passage, with special tokens
    passages: str = "head"  # head+tail, head+middle+tail, stride:N, finepdfs
    pool: str = "max"  # of the logits of a text's passages: max or mean
    hypotheses: Hypotheses | None = None
    pairs: bool = False  # the texts are pairs; see `shardsift/fleet/run/text.py`


@runtime_checkable
class ModelScorer(Protocol):
    """A scorer whose model runs on a device: it can read texts in several ways, and share work with others."""

    def reading(self, reading: Reading) -> Scorer[Any]:
        """Make a scorer with this reading. Raises ModelError if its model cannot read texts like that."""

    def launch(self, encoded: Any, go_on: GoOn, earlier: Scores | None) -> Callable[[], Scores]:
        """Give all batches to the device, as `score_encoded` does. Returns a function that waits for the scores.

        Another thread may call that function, and texts of the next shard may be launched meanwhile.
        """

    @property
    def encoding(self) -> Hashable:
        """A key of the encoding: a scorer can score the texts that another scorer with the same key has encoded."""

    def joined_with(self, others: Sequence[Scorer[Any]]) -> Scorer[Any] | None:
        """Make a scorer of all outputs side by side, if that is cheaper than one scorer after the other; otherwise None."""


@dataclass(frozen=True, kw_only=True)
class DeviceUse:
    """The use of a device by all processes, as its driver reports it."""

    memory_share: float | None = None  # part of its memory in use
    busy_share: float | None = None  # part of the last second in which it computed anything


class ModelShape(Protocol):
    """The sizes that determine a model's work. Hashable, so that the peak is measured once for each shape."""

    def __hash__(self) -> int: ...

    @property
    def matrices(self) -> tuple[tuple[int, int, int], ...]:
        """The matrices of one layer, as (rows, columns, count)."""

    def flops(self, lengths: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        """The operations that each text costs, from its length in tokens."""


@runtime_checkable
class MeteredScorer(Protocol):
    """A scorer that knows what its device could do."""

    config: Any  # of transformers; None if there is none

    def metered(self, shape: ModelShape | None) -> "Scorer[Any]":
        """Return a scorer that counts its work from now on. None for a model whose layers are not known.

        Takes up to a second to measure the device's matmul peak.
        """

    @property
    def seconds_at_peak(self) -> float | None:
        """The seconds that all batches would have taken at the peak. None if unknown. Any thread may ask."""

    def device_use(self) -> DeviceUse:
        """The current use of the device. Any thread may ask."""


# Errors of loading and running a model.


class ModelError(Exception):
    """The model cannot be served. The message says why and what to do."""


class NoRoom(ModelError):
    """The model does not fit on the device, beside those that are loaded."""


class ParityError(ModelError):
    """The optimised model does not reproduce the scores of the plain one."""


class DeviceFault(RuntimeError):
    """The device, its driver or a helper process failed. This process can no longer be trusted and must be replaced."""


Floats = npt.NDArray[np.float32]


def apply(function: str, logits: Floats) -> Floats:
    """Turn logits into scores, both of shape (rows, outputs). "none" returns the logits unchanged.

    The last bits of `exp` depend on the CPU. `exp` is computed in float64, so rounding to float32 drops these bits, and stored
    logits give the same scores on every CPU.
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
