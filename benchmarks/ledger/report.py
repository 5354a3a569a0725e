"""The results of the ledger as tables, and as JSON with all measurements."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.ledger.measure import Latency, Measured, Memory, Phase
from benchmarks.ledger.scale import Size
from benchmarks.results import Provenance, Table, markdown, redis_server_here, write_results


@dataclass(frozen=True, kw_only=True)
class Report:
    provenance: Provenance
    measured: Measured
    sizes: list[Size]

    def markdown(self) -> str:
        facts = {
            "Redis": f"{redis_server_here()}, on a unix socket, on the machine of the simulated workers",
            "What the figures mean": "benchmarks/README.md",
        }
        return markdown("Ledger benchmark", self.provenance, facts, list(_tables(self)))

    def write(self, folder: Path, *, part: str = "") -> tuple[Path, Path]:
        """Write `<date>-<machine>-ledger.json` and `.md`. `part` names a run that is not the standard one."""
        found = {
            "measured": asdict(self.measured),
            "sizes": [asdict(size) for size in self.sizes],
        }
        as_json = write_results("-".join(filter(None, ("ledger", part))), self.provenance, found, folder)
        as_markdown = as_json.with_suffix(".md")
        as_markdown.write_text(self.markdown(), encoding="utf-8")
        return as_json, as_markdown


def _tables(report: Report) -> Iterator[Table]:
    plan = report.measured.plan
    yield _table(f"{plan.shards:,} shards, {plan.workers:,} workers", _whole(report))
    for phase in report.measured.phases:
        yield _table(f"Calls: {phase.name}", _calls(phase), _note(phase))
    if report.sizes:
        yield _table("Without workers, by the number of shards", _sizes(report.sizes))


def _table(title: str, rows: list[list[str]], *notes: str) -> Table:
    return Table(title=title, columns=rows[0], rows=rows[1:], notes=notes)


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
        ["retry of all shards, s", *(f"{size.retry_all_seconds:.1f}" for size in sizes)],
        ["longest pause of Redis, ms", *(f"{size.longest_pause_ms:,.0f}" for size in sizes)],
        ["Redis reads its data, s", *(f"{size.restart_seconds:.1f}" for size in sizes)],
        ["bytes a shard, enqueued", *(f"{size.enqueued.used:,.0f}" for size in sizes)],
        ["bytes a shard, done", *(f"{size.done.used:,.0f}" for size in sizes)],
        ["bytes a shard, done, on disk", *(f"{size.done.append_only_file:,.0f}" for size in sizes)],
    ]
