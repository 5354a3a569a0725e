"""The results as tables for a terminal and for Markdown, and as JSON with all measurements."""

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.ledger.machine import Provenance, machine_slug
from benchmarks.ledger.measure import Latency, Measured, Memory, Phase
from benchmarks.ledger.scale import Size


@dataclass(frozen=True, kw_only=True)
class Target:
    what: str
    wanted: float
    measured: float
    unit: str

    @property
    def met(self) -> bool:
        return self.measured <= self.wanted


@dataclass(frozen=True, kw_only=True)
class Report:
    provenance: Provenance
    measured: Measured
    sizes: list[Size]

    @property
    def targets(self) -> list[Target]:
        fleet = self.measured.phases[0]
        return [
            Target(what="enqueue", wanted=30, measured=self.measured.enqueue.seconds, unit="s"),
            Target(what="Redis a shard, all done", wanted=2000, measured=self.measured.memory_done.used, unit="bytes"),
            Target(what="claim, p99, fleet", wanted=5, measured=fleet.latencies["claim"].p99_ms, unit="ms"),
        ]


def write_results(report: Report, folder: Path, *, part: str = "") -> tuple[Path, Path]:
    """Write `<date>-<machine>-ledger.json` and `.md`. `part` names a run that is not the standard one."""
    folder.mkdir(parents=True, exist_ok=True)
    day = report.provenance.date.split()[0]
    stem = "-".join(filter(None, (day, machine_slug(report.provenance), "ledger", part)))
    as_json, as_markdown = folder / f"{stem}.json", folder / f"{stem}.md"
    found = asdict(report) | {"targets": [asdict(target) | {"met": target.met} for target in report.targets]}
    as_json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    as_markdown.write_text(markdown(report), encoding="utf-8")
    return as_json, as_markdown


def markdown(report: Report) -> str:
    return "\n".join(_lines(report)) + "\n"


def _lines(report: Report) -> Iterator[str]:
    found, plan = report.provenance, report.measured.plan
    yield f"# Ledger benchmark: {found.cpu}, {found.date}"
    yield ""
    yield f"- Command: `{found.command}`"
    yield f"- Commit: {found.commit}"
    yield (
        f"- Machine: {found.cpu}, {found.cores} cores, {found.memory_gib} GiB, shared by Redis, the simulated workers and "
        f"others; load {found.load} before the run"
    )
    yield f"- Redis: {found.server}, on a unix socket"
    yield f"- Versions: {', '.join(f'{name} {version}' for name, version in found.versions.items())}"
    yield ""
    yield "What the figures mean: [benchmarks/README.md](../README.md#the-ledger)."
    yield from _section(f"{plan.shards:,} shards, {plan.workers:,} workers", _whole(report))
    for phase in report.measured.phases:
        yield from _section(f"Calls: {phase.name}", _calls(phase))
        yield ""
        yield _note(phase)
    if report.sizes:
        yield from _section("Without workers, by the number of shards", _sizes(report.sizes))
    yield from _section("Targets", _targets(report))


def _section(title: str, table: list[list[str]]) -> Iterator[str]:
    head, *rows = table
    yield from ("", f"## {title}", "", f"| {' | '.join(head)} |", f"|---|{'---:|' * (len(head) - 1)}")
    yield from (f"| {' | '.join(row)} |" for row in rows)


def _whole(report: Report) -> list[list[str]]:
    measured, enqueue = report.measured, report.measured.enqueue
    return [
        ["what", "figure"],
        ["list a folder of as many files", f"{enqueue.listing_seconds:.1f} s"],
        ["write the run", f"{enqueue.create_seconds:.1f} s"],
        [f"send the first {enqueue.messages:,} messages", f"{enqueue.messages_seconds:.1f} s"],
        ["Redis a shard after enqueue", _memory(measured.memory_enqueued)],
        ["Redis a shard when all are done", _memory(measured.memory_done)],
        ["the finalizer hears of the end after", f"{measured.end_noticed_seconds * 1000:.1f} ms"],
    ]


def _memory(memory: Memory) -> str:
    return f"{memory.used:,.0f} bytes ({memory.resident:,.0f} resident; {memory.append_only_file:,.0f} on disk)"


def _calls(phase: Phase) -> list[list[str]]:
    rows = [_call(name, found, phase.seconds) for name, found in phase.latencies.items()]
    return [["call", "calls/s", "p50 ms", "p99 ms", "max ms"], *rows, _call("sweep", phase.sweep, phase.seconds)]


def _call(name: str, found: Latency, seconds: float) -> list[str]:
    return [
        name,
        f"{found.calls / seconds:,.1f}",
        f"{found.p50_ms:.2f}",
        f"{found.p99_ms:.2f}",
        f"{found.max_ms:.1f}",
    ]


def _note(phase: Phase) -> str:
    return (
        f"{phase.shards:,} shards in {phase.seconds:.0f} s: {phase.shards / phase.seconds:,.1f} a second. "
        f"Redis used {phase.redis_cores:.2f} of a core."
    )


def _sizes(sizes: list[Size]) -> list[list[str]]:
    return [
        ["what", *(f"{size.shards:,}" for size in sizes)],
        ["write the run, s", *(f"{size.create_seconds:.1f}" for size in sizes)],
        ["sweep (take_due, counts), ms", *(f"{size.sweep_ms:.2f}" for size in sizes)],
        ["restore all receipts, s", *(f"{size.restore_seconds:.1f}" for size in sizes)],
        ["read all receipts, s", *(f"{size.receipts_seconds:.1f}" for size in sizes)],
        ["before the first of them, s", *(f"{size.first_receipt_seconds:.2f}" for size in sizes)],
        ["retry --all, s", *(f"{size.retry_all_seconds:.1f}" for size in sizes)],
        ["longest pause of Redis, ms", *(f"{size.longest_pause_ms:,.0f}" for size in sizes)],
        ["Redis reads its data, s", *(f"{size.restart_seconds:.1f}" for size in sizes)],
        ["bytes a shard, enqueued", *(f"{size.enqueued.used:,.0f}" for size in sizes)],
        ["bytes a shard, done", *(f"{size.done.used:,.0f}" for size in sizes)],
        ["bytes a shard, done, on disk", *(f"{size.done.append_only_file:,.0f}" for size in sizes)],
    ]


def _targets(report: Report) -> list[list[str]]:
    rows = [
        [one.what, f"≤ {one.wanted:,.0f} {one.unit}", f"{one.measured:,.1f}", "yes" if one.met else "no"]
        for one in report.targets
    ]
    return [["target", "wanted", "measured", "met"], *rows]
