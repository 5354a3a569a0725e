"""How long the work takes on each kind of device. The best that is known of a kind counts: an earlier run of the same models,
what `worker tune` has measured on this machine, or else its peak.

The last is no measurement of this project on the device. The operations are counted as in `fleet/run/flops.py`: two for each
parameter of a layer and token, and the attention (Kaplan et al., 2020, https://arxiv.org/abs/2001.08361, table 1, without a
mask). They are divided by the part of the peak that encoders reach in the programs that publish figures: 26 to 33 % on an A100
in text-embeddings-inference, by https://github.com/Artain-AI/ignite-ms; 30 % on a T4 and 57 % on an A100 in TensorRT's
demo of BERT; 58 % on an L4 in MLPerf 3.1. The range goes a little further down, because models that are not packed here do worse.
"""

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import redis

from fleet.errors import UsageError
from fleet.ledger import Ledger
from fleet.process.settings import Settings
from fleet.process.tuned import Tuned, read_tuned
from fleet.run.receipt import Provenance
from fleet.run.spec import RunSpec
from producer.planning.estimate.work import ScoringWork
from producer.status.cost import GPUS, gpu_called

# How fast an earlier run of the same models was, from the receipts in the ledger.

_MOST_RUNS = 50  # that are asked for, newest first
_MOST_RECEIPTS = 200  # of the run that is found


@dataclass(frozen=True, kw_only=True)
class EarlierSpeed:
    """Tokens per second of a worker while it had one of these shards, with what it waited for."""

    run_id: str
    device: str
    tokens_per_second: float
    shards: int


@contextmanager
def ledger_if_it_answers(settings: Settings) -> Iterator[Ledger | None]:
    """The fleet's ledger, to read. None if no Redis is named, or it does not answer."""
    try:
        ledger = Ledger.connect(settings) if settings.redis_url else None
    except UsageError:
        ledger = None
    try:
        yield ledger
    finally:
        if ledger:
            ledger.redis.close()


def speeds_of_an_earlier_run(spec: RunSpec, ledger: Ledger) -> list[EarlierSpeed]:
    """Of the newest run that the same workers serve and that has done shards: one for each kind of device. Empty if none has."""
    try:
        for run_id in ledger.run_ids()[:_MOST_RUNS]:
            if ledger.spec(run_id).queue == spec.queue and (speeds := _speeds(ledger, run_id)):
                return speeds
    except (redis.RedisError, UsageError):  # a run was deleted meanwhile
        pass
    return []


def _speeds(ledger: Ledger, run_id: str) -> list[EarlierSpeed]:
    by_device: defaultdict[str, list[Provenance]] = defaultdict(list)
    for receipt in ledger.some_receipts(run_id, _MOST_RECEIPTS):
        made = receipt.provenance
        if made.tokens and any(made.seconds.values()):
            by_device[made.device].append(made)
    return [
        EarlierSpeed(
            run_id=run_id,
            device=device,
            tokens_per_second=sum(one.tokens for one in made) / math.fsum(_seconds(one) for one in made),
            shards=len(made),
        )
        for device, made in by_device.items()
    ]


def _seconds(made: Provenance) -> float:
    return math.fsum(made.seconds.values())


# A number that is only known to lie in a range.


@dataclass(frozen=True, kw_only=True)
class Range:
    low: float
    high: float

    def __mul__(self, factor: float) -> "Range":
        return Range(low=self.low * factor, high=self.high * factor)

    def widened(self, share: float) -> "Range":
        """The range if it is also off by up to this share of its value."""
        return Range(low=self.low * max(0.0, 1 - share), high=self.high * (1 + share))


SHARE_OF_PEAK = Range(low=0.2, high=0.57)
_TUNED_TO_RUN = Range(
    low=1.0, high=1.25
)  # what reading, writing and the pauses between shards add to the model's own time
_LEAST_ERROR, _ERROR_OF_ONE_SHARD, _MOST_ERROR = 0.1, 0.4, 0.5  # of the speed of an earlier run, by its shards
_SECONDS = 3600


@dataclass(frozen=True, kw_only=True)
class DeviceTime:
    """The hours for which workers hold shards, each with one device of this kind, and how that is known."""

    device: str
    hours: Range
    basis: str


def device_times(
    spec: RunSpec, work: Sequence[ScoringWork], *, ledger: Ledger | None, state_dir: Path
) -> list[DeviceTime]:
    """One for each kind of device of which something is known."""
    known: dict[str, DeviceTime] = {}
    earlier = _as_an_earlier_run(spec, work, ledger) if ledger else ()
    for time in (*earlier, *_as_tuned(work, read_tuned(state_dir)), *_by_peaks(work)):
        gpu = gpu_called(time.device)
        known.setdefault(gpu.name if gpu else time.device, time)
    return list(known.values())


def _as_an_earlier_run(spec: RunSpec, work: Sequence[ScoringWork], ledger: Ledger) -> Iterator[DeviceTime]:
    tokens = sum(one.tokens.value for one in work)
    for speed in speeds_of_an_earlier_run(spec, ledger):
        error = min(_MOST_ERROR, max(_LEAST_ERROR, _ERROR_OF_ONE_SHARD / math.sqrt(speed.shards)))
        hours = tokens / speed.tokens_per_second / _SECONDS
        exact = Range(low=hours, high=hours)
        yield DeviceTime(device=speed.device, hours=exact.widened(error), basis=f"as run {speed.run_id} did")


def _as_tuned(work: Sequence[ScoringWork], tuned: Sequence[Tuned]) -> Iterator[DeviceTime]:
    """By the speed of each model on a device, if all of them were tuned there."""
    for device in dict.fromkeys(one.key.device for one in tuned):
        found = [_fastest(one, device, tuned) for one in work]
        best = [one for one in found if one]
        if len(best) < len(work):
            continue
        pairs = zip(work, best, strict=True)
        seconds = sum(one.tokens.value / speed.figures.tokens_per_second for one, speed in pairs)
        yield DeviceTime(
            device=device,
            hours=_TUNED_TO_RUN * (seconds / _SECONDS),
            basis=f"as `worker tune` measured here on {best[0].date}",
        )


def _fastest(work: ScoringWork, device: str, tuned: Sequence[Tuned]) -> Tuned | None:
    model, dtype = work.scoring.model, work.scoring.dtype
    of_model = (
        one
        for one in tuned
        if (one.key.model, one.key.revision, one.key.device) == (model.name, model.revision, device)
        and dtype in ("auto", one.key.dtype)
    )
    return max(of_model, key=lambda one: one.figures.tokens_per_second, default=None)


def _by_peaks(work: Sequence[ScoringWork]) -> Iterator[DeviceTime]:
    """Nothing for float32, whose peak is another, and for models whose layers are not known."""
    if any(one.operations is None or one.scoring.dtype == "float32" for one in work):
        return
    operations = sum(one.operations or 0.0 for one in work)
    for gpu in GPUS:
        fastest, slowest = (
            operations / gpu.peak / share / _SECONDS for share in (SHARE_OF_PEAK.high, SHARE_OF_PEAK.low)
        )
        yield DeviceTime(
            device=gpu.name, hours=Range(low=fastest, high=slowest), basis="estimated from its peak, not measured"
        )
