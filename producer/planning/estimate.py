"""Report a dry run: the plan, and its estimated tokens, hours and cost.

Rows and tokens come from a sample, hours from the speed of an earlier run or the peak speed of a GPU. The report says
that each figure is rough. Needs no torch and downloads no weights.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import chain
from typing import Any

import redis

from shardsift.fleet.errors import ShardError, ShardsiftError, UsageError
from shardsift.fleet.inputs.formats import has_footer
from shardsift.fleet.inputs.input_file import FirstBadRows, too_many_bad_rows
from shardsift.fleet.ledger import Ledger
from shardsift.fleet.process.settings import Settings
from shardsift.fleet.process.wording import counted, left_out_line, shown_bytes
from shardsift.fleet.run.spec import RunSpec, Shard
from shardsift.producer.gpus import GPUS, PRICES_FROM, gpu_called, list_price
from shardsift.producer.planning.inputs import count_rows
from shardsift.producer.planning.plan import Plan
from shardsift.producer.planning.sampled_work import CHARS_PER_TOKEN, SampledShard, Work, sample_shards, work_of

_SECONDS = 3600
_REMOTE_FOOTERS, _LOCAL_FOOTERS = 16, 2_000  # reading more footers takes too long
_LINES_BYTES = 1 << 30  # reading more bytes of JSON Lines and CSV takes too long
_LEAST = 0.01  # smallest hours or cost shown as a number
_DIGITS = 3  # significant digits of an estimated total


@dataclass(frozen=True, kw_only=True)
class Range:
    low: float
    high: float

    def __mul__(self, factor: float) -> "Range":
        return Range(low=self.low * factor, high=self.high * factor)

    def __str__(self) -> str:
        return f"{max(_LEAST, self.low):,.2f} to {max(_LEAST, self.high):,.2f}"


# Shares of a GPU's peak that encoders reach in published benchmarks: 26 to 33 % on an A100 in text-embeddings-inference
# (https://github.com/Artain-AI/ignite-ms), 30 % on a T4 and 57 % on an A100 in TensorRT's demo of BERT, 58 % on an L4
# in MLPerf 3.1. The range here starts lower, at 20 %, because models whose batches are padded are slower.
_OF_A_PEAK = Range(low=1 / 0.57, high=1 / 0.2)  # factor on the time at the peak
_OF_AN_EARLIER_RUN = Range(low=0.7, high=1.5)  # factor on the time at an earlier run's speed, because its texts differ
_MOST_RUNS = 50  # earlier runs to look at, newest first
_MOST_RECEIPTS = 200  # receipts to read of the earlier run


@dataclass(frozen=True, kw_only=True)
class DeviceEstimate:
    """The estimated hours and cost if all workers have this kind of device. Excludes their starts and idle time.

    `cost` is `gpu_hours` times `price_per_gpu_hour`. `cost` and the price are None if no price is known.
    """

    device: str
    gpu_hours: Range
    basis: str  # how the speed is known
    price_per_gpu_hour: float | None = None
    price_from: str = ""
    cost: Range | None = None

    @property
    def line(self) -> str:
        price = (
            f"{self.cost} at {self.price_per_gpu_hour:.2f} an hour, {self.price_from}"
            if self.cost
            else "no price known"
        )
        return f"  {self.device}: {self.gpu_hours} hours, {self.basis}; {price}"


@dataclass(frozen=True, kw_only=True)
class Looked:
    """Findings from reading a sample of rows."""

    sampled_rows: int = 0
    sampled_shards: int = 0
    bad_rows: dict[str, int] = field(default_factory=dict)  # reason → rows of the sample that cannot be read
    refused: str = ""  # why the run would fail if all rows are like the sample
    left_out: dict[str, int] = field(default_factory=dict)  # field that the output will lack → rows of the sample

    def warnings(self) -> Iterator[str]:
        if self.bad_rows:
            causes = ", ".join(f"{rows:,} {reason}" for reason, rows in self.bad_rows.items())
            yield f"bad rows: {causes}, of {counted(self.sampled_rows, 'row')} that were looked at"
        if self.left_out:
            yield f"left out: {left_out_line(self.left_out)} of {counted(self.sampled_rows, 'row')} that were looked at"
        if self.refused:
            yield f"the run would fail: {self.refused}"


@dataclass(frozen=True, kw_only=True)
class Estimate(Looked):
    """The estimate for a run. `rows` and `tokens` are None if unknown; `notes` say why."""

    rows: int | None = None
    rows_are_counted: bool = False  # otherwise estimated from the sample; tokens always are
    tokens: int | None = None
    devices: tuple[DeviceEstimate, ...] = ()
    notes: tuple[str, ...] = ()

    def as_json(self) -> dict[str, object]:
        return asdict(self)

    def lines(self) -> Iterator[str]:
        known = []
        if self.rows is not None:
            known.append(counted(self.rows, "row") if self.rows_are_counted else f"{_about(self.rows)} rows")
        if self.tokens is not None:
            known.append(f"{_about(self.tokens)} tokens")
            known.append(f"from {counted(self.sampled_rows, 'row')} of {counted(self.sampled_shards, 'shard')}")
        yield f"estimate: {', '.join(known) or 'unknown'}"
        if self.devices and all(one.gpu_hours.high < _LEAST for one in self.devices):
            yield "  under a minute of work on each kind of GPU; a CPU takes far longer"
        else:
            yield from (one.line for one in self.devices)
        yield from (f"  {note}" for note in self.notes)
        if self.devices:
            yield "  Starts of workers and their idle time come on top."
        yield from self.warnings()


def plan_report(plan: Plan) -> dict[str, int | str]:
    """Return facts about the plan, by name. `rows` is a number, or the reason why the rows were not counted."""
    spec = plan.spec
    sizes = [shard.size_bytes for shard in plan.shards]
    return {
        "run_id": spec.run_id,
        "input": ", ".join(spec.input_uris),
        "revision": spec.input_revision,
        "shards": len(plan.shards),
        "rows": _rows(plan.shards),
        "bytes": sum(size for size in sizes if size is not None),
        "model": ", ".join(f"{scoring.model.name} at {scoring.model.revision}" for scoring in spec.scorings),
        "added_columns": ", ".join(spec.output_columns),
        "filter": spec.where or "none",
        "drop_lists": ", ".join(f"{one.option} ({one.values:,} values)" for one in spec.drop_lists) or "none",
        "target_file_size": shown_bytes(spec.target_file_bytes) if spec.target_file_bytes else "none",
        "output": spec.output_uri,
        "tasks": len(plan.shards),
        "queue": spec.queue,
    }


def estimate_run(
    plan: Plan, *, counted_rows: int | None, ledger: Ledger | None, price_per_gpu_hour: float | None = None
) -> Estimate:
    """Estimate tokens, hours and cost. `counted_rows` is None if the rows were not counted.

    The speed comes from an earlier run of the same models in `ledger`, if there is one. Does not raise if something
    cannot be read: the notes say what is missing.
    """
    spec, rows = plan.spec, counted_rows
    if any(scoring.scores_from for scoring in spec.scorings):
        return Estimate(rows=rows, notes=("no text is scored, and no GPU needed: the scores are stored",))
    try:
        sample = sample_shards(spec, plan.shards)
        rows = rows_by_size(spec, plan.shards, sample) if rows is None else rows
    except ShardsiftError as error:
        refused = str(error) if isinstance(error, ShardError) else ""
        return Estimate(rows=rows, notes=(f"tokens are unknown: {str(error).rstrip('.')}",), refused=refused)
    with_findings = Estimate(
        rows=rows,
        rows_are_counted=counted_rows is not None,
        **looked_at(spec, sample),
    )
    if rows is None:
        return replace(with_findings, notes=("rows are unknown: files of lines do not say how many they have",))
    try:
        work = [work_of(scoring, sample, rows) for scoring in spec.scorings]
    except ShardsiftError as error:
        return replace(with_findings, notes=(f"tokens are unknown: {str(error).rstrip('.')}",))
    devices = tuple(_devices(spec, work, ledger, price_per_gpu_hour))
    return replace(
        with_findings,
        tokens=sum(one.tokens for one in work),
        devices=devices,
        notes=tuple(_notes(work, devices)),
    )


def looked_at(spec: RunSpec, sample: Sequence[SampledShard]) -> dict[str, Any]:
    """Return the values of the fields of Looked for a sample, by name."""
    return {
        "sampled_rows": sum(len(one.table) for one in sample),
        "sampled_shards": len({(one.shard.uri, one.shard.first_row) for one in sample}),
        "bad_rows": _most_first(bad.reason for one in sample for bad in one.noted.values()),
        "refused": _refusal(spec, sample),
        "left_out": _most_first(
            chain.from_iterable(chain.from_iterable(one.noted.left_out.values() for one in sample))
        ),
    }


def _most_first(names: Iterable[str]) -> dict[str, int]:
    return dict(Counter(names).most_common())


def _refusal(spec: RunSpec, sample: Sequence[SampledShard]) -> str:
    """Say why the run would fail, and name the first bad rows. Empty if the sample is within the limit of bad rows."""
    found, rows = FirstBadRows(), sum(len(one.table) for one in sample)
    for one in sample:
        found.add([replace(bad, position=f"shard {one.shard.name}, {bad.position}") for bad in one.noted.values()])
    why = too_many_bad_rows(found.number, rows, spec.max_bad_rows, of_run=True)
    return f"{why}. {found}" if why else ""


def ledger_if_it_answers(settings: Settings) -> Ledger | None:
    """Open the fleet's ledger. Returns None if no Redis is named, or it does not answer."""
    try:
        return Ledger.connect(settings) if settings.redis_url else None
    except UsageError:
        return None


def rows_by_size(spec: RunSpec, shards: Sequence[Shard], sample: Sequence[SampledShard]) -> int | None:
    """Estimate the rows of all shards from the sample and the file sizes. None if a sampled file's rows are unknown."""
    rows = [one.rows for one in sample if one.rows is not None]
    if not rows or len(rows) < len(sample):
        return None
    part = sum(one.shard.size_bytes or 1 for one in sample) / sum(shard.size_bytes or 1 for shard in shards)
    return min(round(sum(rows) / part), spec.limit_rows or round(sum(rows) / part))


def earlier_speeds(spec: RunSpec, ledger: Ledger) -> tuple[str, dict[str, float]]:
    """Find the newest run of the same models that has finished shards. Returns its id, and tokens per second by device.

    Both are empty if there is no such run.
    """
    try:
        for run_id in ledger.run_ids()[:_MOST_RUNS]:
            if ledger.spec(run_id).queue == spec.queue and (speeds := _speeds(ledger, run_id)):
                return run_id, speeds
    except (redis.RedisError, UsageError):  # a run was deleted meanwhile
        pass
    return "", {}


def _speeds(ledger: Ledger, run_id: str) -> dict[str, float]:
    tokens: dict[str, int] = {}
    seconds: dict[str, float] = {}
    for receipt in ledger.some_receipts(run_id, _MOST_RECEIPTS):
        made = receipt.provenance
        tokens[made.device] = tokens.get(made.device, 0) + made.tokens
        seconds[made.device] = seconds.get(made.device, 0.0) + sum(made.seconds.values())
    return {device: tokens[device] / seconds[device] for device in tokens if tokens[device] and seconds[device]}


def _devices(
    spec: RunSpec, work: Sequence[Work], ledger: Ledger | None, price: float | None
) -> Iterator[DeviceEstimate]:
    """Estimate the hours on the devices of an earlier run by its speed, then on all other GPUs by their peak speed.

    Leaves out these other GPUs if a model's layers are unknown or a scoring is in float32. `price` is per GPU and hour.
    """
    run_id, speeds = earlier_speeds(spec, ledger) if ledger else ("", {})
    for device, speed in speeds.items():
        hours = _OF_AN_EARLIER_RUN * (sum(one.tokens for one in work) / speed / _SECONDS)
        yield priced(device, hours, f"as run {run_id} did", price)
    if any(one.operations is None or one.scoring.dtype == "float32" for one in work):  # float32 has another peak
        return
    operations = sum(one.operations or 0.0 for one in work)
    measured = {gpu_called(device) for device in speeds}
    for gpu in GPUS:
        if gpu not in measured:
            hours = _OF_A_PEAK * (operations / gpu.peak / _SECONDS)
            yield priced(gpu.name, hours, "estimated from its peak, not measured", price)


def priced(device: str, hours: Range, basis: str, price: float | None) -> DeviceEstimate:
    """Make a device's estimate from its hours and a price per hour. If `price` is None, uses the list price."""
    source = "SHARDSIFT_PRICE_PER_GPU_HOUR"
    if price is None:
        price, source = list_price(device), PRICES_FROM
    estimate = DeviceEstimate(device=device, gpu_hours=hours, basis=basis)
    if price is None:
        return estimate
    return replace(estimate, price_per_gpu_hour=price, price_from=source, cost=hours * price)


def _notes(work: Sequence[Work], devices: Sequence[DeviceEstimate]) -> Iterator[str]:
    for why in dict.fromkeys(one.why_not_counted for one in work if one.why_not_counted):
        yield f"a token is taken for {CHARS_PER_TOKEN} characters, since {why}"
    if not devices:
        yield (
            "GPU-hours are unknown: no earlier run measured this model, and operations are counted for known layers "
            "in 16 bits only"
        )


def _rows(shards: tuple[Shard, ...]) -> int | str:
    is_local = all(shard.uri.startswith("file:") for shard in shards)
    if len(shards) > (_LOCAL_FOOTERS if is_local else _REMOTE_FOOTERS):
        where = "" if is_local else " over the network"
        return f"not counted: it would take reading {len(shards):,} footers{where}"
    lines = [shard for shard in shards if not has_footer(shard.uri)]
    if lines and (not is_local or sum(shard.size_bytes or 0 for shard in lines) > _LINES_BYTES):
        return f"not counted: it would take reading {counted(len(lines), 'file')} whole"
    return count_rows(shards)


def _about(number: int) -> str:
    return f"about {round(number, _DIGITS - len(str(number))):,}"
