"""Estimate a planned run from a sample of its rows, and from how fast devices are known to be."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from fleet.errors import ShardsiftError
from fleet.ledger import Ledger
from producer.planning.estimate.speed import DeviceTime, Range, device_times
from producer.planning.estimate.work import (
    CHARS_PER_TOKEN,
    Quantity,
    SampledShard,
    ScoringWork,
    sample_shards,
    sampled_rows,
    scoring_work,
)
from producer.planning.plan import Plan
from producer.status.cost import PRICED_BY, PRICED_ON, gpu_called

LIST_PRICE = f"list price of {PRICED_BY} on {PRICED_ON}"
PRICE_GIVEN = "SHARDSIFT_PRICE_PER_GPU_HOUR"


@dataclass(frozen=True, kw_only=True)
class DeviceEstimate:
    """What the run takes if all its workers have this kind of device. Their starts and idle time are not counted.

    `cost` is `gpu_hours` times the price; both are None if no price is known.
    """

    device: str
    gpu_hours: Range
    basis: str  # how the speed is known
    price_per_gpu_hour: float | None = None
    price_from: str = ""  # LIST_PRICE, in US dollars, or PRICE_GIVEN
    cost: Range | None = None


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """`rows` and `tokens` are None if they are not known, for the reasons in `notes`. Each may be off by a share, its error."""

    rows: int | None = None
    rows_error: float = 0.0
    tokens: int | None = None
    tokens_error: float = 0.0
    sampled_rows: int = 0
    sampled_shards: int = 0
    devices: tuple[DeviceEstimate, ...] = ()
    notes: tuple[str, ...] = ()

    def as_json(self) -> dict[str, object]:
        return asdict(self)


def estimate_run(
    plan: Plan,
    *,
    counted_rows: int | None,
    ledger: Ledger | None,
    state_dir: Path,
    price_per_gpu_hour: float | None = None,
) -> Estimate:
    """`counted_rows` are those of the input, if they were counted. `ledger` may know an earlier run, and `state_dir` the results
    of `worker tune`. Never raises for what cannot be read: the notes say what is missing.
    """
    spec = plan.spec
    if any(scoring.scores_from for scoring in spec.scorings):
        return Estimate(rows=counted_rows, notes=("no text is scored, and no GPU needed: the scores are stored",))
    try:
        sample = sample_shards(spec, plan.shards)
    except ShardsiftError as error:
        return Estimate(rows=counted_rows, notes=(_unknown("tokens", str(error)),))
    rows = sampled_rows(spec, plan.shards, sample) if counted_rows is None else Quantity(value=counted_rows)
    if rows is None:
        return Estimate(notes=(_unknown("rows", "files of lines do not say how many they have"),))
    try:
        work = [scoring_work(scoring, rows, sample, shards=len(plan.shards)) for scoring in spec.scorings]
    except ShardsiftError as error:
        return _estimate(rows, sample, notes=(_unknown("tokens", str(error)),))
    tokens = _sum([one.tokens for one in work])
    times = device_times(spec, work, ledger=ledger, state_dir=state_dir)
    return _estimate(
        rows,
        sample,
        tokens=round(tokens.value),
        tokens_error=tokens.error,
        devices=tuple(priced(time, tokens.error, price_per_gpu_hour) for time in times),
        notes=tuple(_notes(work, times)),
    )


def _estimate(rows: Quantity, sample: Sequence[SampledShard], **known: Any) -> Estimate:
    return Estimate(
        rows=round(rows.value),
        rows_error=rows.error,
        sampled_rows=sum(len(one.table) for one in sample),
        sampled_shards=len(sample),
        **known,
    )


def _sum(parts: Sequence[Quantity]) -> Quantity:
    """Their errors are not independent: the scorings read the same sample."""
    value = sum(part.value for part in parts)
    return Quantity(value=value, error=sum(part.value * part.error for part in parts) / value if value else 0.0)


def priced(time: DeviceTime, error: float, price_per_gpu_hour: float | None) -> DeviceEstimate:
    gpu, hours = gpu_called(time.device), time.hours.widened(error)
    price, source = price_per_gpu_hour, PRICE_GIVEN
    if price is None:
        price, source = (gpu.price_per_hour if gpu else None), LIST_PRICE
    return DeviceEstimate(
        device=time.device,
        gpu_hours=hours,
        basis=time.basis,
        price_per_gpu_hour=price,
        price_from=source if price is not None else "",
        cost=hours * price if price is not None else None,
    )


def _notes(work: Sequence[ScoringWork], times: Sequence[DeviceTime]) -> Iterator[str]:
    for why in dict.fromkeys(one.why_not_counted for one in work if one.why_not_counted):
        yield f"a token is taken for {CHARS_PER_TOKEN} characters, since {why}"
    if not times:
        yield (
            "GPU-hours are unknown: no earlier run and no `worker tune` here measured this model, and its operations are "
            "counted for known layers in 16 bits only"
        )


def _unknown(what: str, why: str) -> str:
    return f"{what} are unknown: {why.rstrip('.')}"
