"""The figures of the storms, as a table for a terminal and as JSON, with the machine on which they were measured."""

import json
import platform
import shlex
import statistics
import sys
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from benchmarks.ledger.machine import _commit, _cpu, _server
from chaos.bounds import broken_bounds
from chaos.kinds import KILLS, Kind
from chaos.promises import Promise
from chaos.recovery import History, Recovery, recoveries
from chaos.redone import work
from chaos.storm import Outcome
from fleet.process.wording import counted


@dataclass(frozen=True, kw_only=True)
class Spread:
    """A distribution of seconds."""

    count: int
    p50: float
    p95: float
    max: float


@dataclass(frozen=True, kw_only=True)
class KindFigures:
    """Figures of one kind of fault.

    `recovery` covers everything that faults left to recover, `calm` those that no fault of Redis or of a finalizer disturbed.
    `until_sent` is the part of `calm` until the shard was sent again. `lost_rows` are rows that were scored again.
    """

    faults: int
    recovery: Spread | None
    calm: Spread | None
    until_sent: Spread | None
    lost_rows_mean: float
    lost_rows_max_calm: int
    lost_rows_max: int


@dataclass(frozen=True, kw_only=True)
class StormFigures:
    name: str
    seed: int
    workers: int
    machines: int
    finalizers: int
    lease_seconds: float
    sweep_seconds: float
    seconds: float
    runs: int
    runs_on_hub: int
    shards: int
    rows: int
    enqueues: int
    by_kind: dict[str, KindFigures]
    load_seconds: Spread | None
    rows_scored: int
    redone_share: float
    unasked_ends: dict[str, int]
    left: dict[str, int]
    published_at_once: int
    counts: dict[str, int]
    broken: list[str]

    def faults_of(self, kind: Kind) -> int:
        return self.by_kind[kind].faults if kind in self.by_kind else 0


@dataclass(frozen=True, kw_only=True)
class Report:
    command: str
    commit: str
    date: str
    cpu: str
    cores: int
    redis: str
    versions: dict[str, str]
    storms: list[StormFigures] = field(default_factory=list)

    def too_few(self, kinds: Collection[Kind], wanted: int) -> dict[str, int]:
        """The kinds of kills that happened less often than `wanted` over all storms, with their counts."""
        counts = {kind: sum(storm.faults_of(kind) for storm in self.storms) for kind in KILLS if kind in kinds}
        return {str(kind): count for kind, count in counts.items() if count < wanted}

    @property
    def broken(self) -> list[str]:
        return [f"{storm.name}: {what}" for storm in self.storms for what in storm.broken]


def report_of(outcomes: Sequence[Outcome], *, cores: int) -> Report:
    return Report(
        command=shlex.join(["python", "-m", "chaos", *sys.argv[1:]]),
        commit=_commit(),
        date=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        cpu=_cpu(),
        cores=cores,
        redis=_server(),
        versions={"python": platform.python_version()} | {name: version(name) for name in ("celery", "kombu", "redis")},
        storms=[figures_of(outcome) for outcome in outcomes],
    )


def figures_of(outcome: Outcome) -> StormFigures:
    plan = outcome.plan
    history = History(outcome.events, outcome.finalizer_pids)
    found = recoveries(outcome.faults, history, sweep_seconds=plan.fleet.sweep_seconds, damaged=_disturbed(outcome))
    done = work(outcome.work_log, outcome.events)
    loads = [event.seconds for event in outcome.events if event.what == "loaded"]
    bounds = broken_bounds(done.lost_to(found), plan.fleet, load_seconds=max(loads, default=0.0))
    broken = [*outcome.problems, *bounds]
    ended = [run for run in outcome.runs if run.published_at]
    shards = sum(len(run.variant.shard_names - run.variant.poison) for run in ended)
    return StormFigures(
        name=plan.name,
        seed=plan.seed,
        workers=plan.fleet.workers,
        machines=plan.fleet.machines,
        finalizers=plan.fleet.finalizers,
        lease_seconds=plan.fleet.lease_seconds,
        sweep_seconds=plan.fleet.sweep_seconds,
        seconds=round(outcome.seconds, 1),
        runs=len(ended),
        runs_on_hub=sum(bool(run.hub_repo) for run in ended),
        shards=shards,
        rows=done.scored - done.redone,
        enqueues=sum(run.enqueues for run in outcome.runs),
        by_kind=_by_kind(outcome, found, done.lost_to(found)),
        load_seconds=_spread(loads),
        rows_scored=done.scored,
        redone_share=round(done.redone_share, 4),
        unasked_ends=dict(outcome.unasked_ends),
        left=outcome.left,
        published_at_once=_published_at_once(outcome),
        counts={str(promise): sum(one.promise == promise for one in broken) for promise in Promise},
        broken=[str(one) for one in broken],
    )


def _disturbed(outcome: Outcome) -> set[tuple[str, str]]:
    """Run and name of shards that lost work or waited for another reason: poison, a fault of their files, or an operator."""
    return {
        (run.run_id, shard)
        for run in outcome.runs
        for shard in (
            run.variant.shard_names
            if run.is_steered
            else run.variant.poison | (run.files.touched if run.files else set())
        )
    }


def text_of(report: Report) -> str:
    return "\n".join(_lines(report)) + "\n"


def write_report(report: Report, folder: Path, name: str) -> tuple[Path, Path]:
    folder.mkdir(parents=True, exist_ok=True)
    as_json, as_text = folder / f"{name}.json", folder / f"{name}.txt"
    as_json.write_text(json.dumps(asdict(report), indent=1) + "\n", encoding="utf-8")
    as_text.write_text(text_of(report), encoding="utf-8")
    return as_json, as_text


def _by_kind(
    outcome: Outcome, found: Sequence[Recovery], lost: Sequence[tuple[Recovery, int]]
) -> dict[str, KindFigures]:
    counts = Counter(fault.kind for fault in outcome.faults)
    return {str(kind): _kind_figures(kind, counts[kind], found, lost) for kind in Kind if counts[kind]}


def _kind_figures(
    kind: Kind, faults: int, found: Sequence[Recovery], lost: Sequence[tuple[Recovery, int]]
) -> KindFigures:
    own = [recovery for recovery in found if recovery.kind == kind]
    calm = [recovery for recovery in own if recovery.is_calm]
    rows = [rows for recovery, rows in lost if recovery.kind == kind]
    calm_rows = [rows for recovery, rows in lost if recovery.kind == kind and recovery.is_calm]
    return KindFigures(
        faults=faults,
        recovery=_spread([recovery.seconds for recovery in own]),
        calm=_spread([recovery.seconds for recovery in calm]),
        until_sent=_spread([recovery.due_seconds for recovery in calm if recovery.due_seconds is not None]),
        lost_rows_mean=round(statistics.fmean(rows), 2) if rows else 0.0,
        lost_rows_max_calm=max(calm_rows, default=0),
        lost_rows_max=max(rows, default=0),
    )


def _published_at_once(outcome: Outcome) -> int:
    """The number of runs in folders that two finalizers published at the same time."""
    ends = Counter(event.run for event in outcome.events if event.what == "publish")
    return sum(ends[run.run_id] > 1 for run in outcome.runs if not run.hub_repo)


def _spread(values: Sequence[float]) -> Spread | None:
    if not values:
        return None
    ordered = sorted(values)
    return Spread(
        count=len(ordered),
        p50=round(ordered[len(ordered) // 2], 2),
        p95=round(ordered[min(len(ordered) - 1, int(len(ordered) * 0.95))], 2),
        max=round(ordered[-1], 2),
    )


def _lines(report: Report) -> Iterator[str]:
    yield f"{report.command}"
    yield f"{report.date}, commit {report.commit}, {report.cpu}, {report.cores} cores, {report.redis}"
    for storm in report.storms:
        yield ""
        yield from _storm_lines(storm)
    yield ""
    yield f"broken: {len(report.broken)}"
    yield from (f"  {what}" for what in report.broken)


def _storm_lines(storm: StormFigures) -> Iterator[str]:
    yield (
        f"{storm.name}: seed {storm.seed}, {storm.seconds:.0f} s, {counted(storm.workers, 'worker')}, "
        f"{counted(storm.machines, 'machine')}, {counted(storm.finalizers, 'finalizer')}, "
        f"lease {storm.lease_seconds:g} s, sweep {storm.sweep_seconds:g} s"
    )
    work = f"{storm.rows:,} rows; {storm.redone_share:.1%} of all scored rows were scored more than once"
    yield (
        f"{storm.runs} runs published ({storm.runs_on_hub} of them on the Hub) by {storm.enqueues} calls of enqueue; "
        f"{storm.shards:,} shards, {work if storm.rows_scored else 'scored rows were not counted'}"
    )
    if storm.load_seconds:
        load = storm.load_seconds
        yield f"a child is ready after {load.p50} s, 95 % after {load.p95} s, all after {load.max} s"
    yield ""
    head = ["kind", "faults", "recovered", "p50 s", "p95 s", "max s", "calm", "p95 s", "max s", "sent p95", "max s"]
    head += ["rows lost", "max calm", "max"]
    rows = [head, *(_kind_row(kind, figures) for kind, figures in storm.by_kind.items())]
    widths = [max(len(row[column]) for row in rows) for column in range(len(head))]
    for row in rows:
        first, *others = (
            f"{cell:<{width}}" if not i else f"{cell:>{width}}"
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        yield "  ".join([first, *others]).rstrip()
    yield ""
    yield f"{sum(figures.faults for figures in storm.by_kind.values())} faults in all; broken promises:"
    yield "  " + ", ".join(f"{what} {count}" for what, count in storm.counts.items())
    yield f"two finalizers published the same bytes to a folder at the same time: {storm.published_at_once} times"
    yield "left at the end: " + ", ".join(f"{what} {count}" for what, count in storm.left.items())
    if storm.unasked_ends:
        yield "ended without a fault: " + ", ".join(f"{who} {count}" for who, count in storm.unasked_ends.items())


def _kind_row(kind: str, figures: KindFigures) -> list[str]:
    return [
        kind,
        str(figures.faults),
        *_cells(figures.recovery, "count", "p50", "p95", "max"),
        *_cells(figures.calm, "count", "p95", "max"),
        *_cells(figures.until_sent, "p95", "max"),
        f"{figures.lost_rows_mean:.1f}",
        str(figures.lost_rows_max_calm),
        str(figures.lost_rows_max),
    ]


def _cells(spread: Spread | None, *names: str) -> Iterator[str]:
    for name in names:
        value = getattr(spread, name) if spread else None
        yield "" if value is None else str(value) if name == "count" else f"{value:.2f}"
