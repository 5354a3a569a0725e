"""The results as tables for a terminal and for Markdown, and as JSON with all measurements. Knows no models."""

import json
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table as RichTable

from benchmarks.scorer.case import Model
from benchmarks.scorer.compare import Comparison
from benchmarks.scorer.contender import Name
from benchmarks.scorer.figures import CaseFigures, Target, best_peaks, figures_of, targets
from benchmarks.scorer.machine import Provenance, device_slug
from benchmarks.scorer.ours import OurSettings


@dataclass(frozen=True, kw_only=True)
class Report:
    provenance: Provenance
    settings: OurSettings
    comparisons: list[Comparison]

    @property
    def figures(self) -> list[CaseFigures]:
        return [figures_of(comparison, self._peaks(comparison.case.model)) for comparison in self.comparisons]

    @property
    def targets(self) -> list[Target]:
        cases = [comparison.case for comparison in self.comparisons]
        return targets(self.provenance.machine.kind, list(zip(cases, self.figures, strict=True)))

    def _peaks(self, model: Model) -> dict[str, float]:
        return best_peaks(comparison for comparison in self.comparisons if comparison.case.model is model)


@dataclass(frozen=True, kw_only=True)
class Table:
    title: str
    columns: tuple[str, ...]
    rows: list[tuple[str, ...]]
    notes: tuple[str, ...] = ()


_WIDTH = 140  # columns, if the output is not a terminal


def write_results(report: Report, folder: Path, *, part: str = "") -> tuple[Path, Path]:
    """Write `<date>-<device>.json` and `.md`. `part` names the part of the plan. Overwrites a file of the same day."""
    folder.mkdir(parents=True, exist_ok=True)
    day = report.provenance.date.split()[0]
    stem = "-".join(filter(None, (day, device_slug(report.provenance.machine), part)))
    as_json, as_markdown = folder / f"{stem}.json", folder / f"{stem}.md"
    as_json.write_text(json.dumps(_as_dict(report), indent=1) + "\n", encoding="utf-8")
    as_markdown.write_text("\n".join(_markdown(report)) + "\n", encoding="utf-8")
    return as_json, as_markdown


def print_report(report: Report) -> None:
    console = Console(width=None if sys.stdout.isatty() else _WIDTH)
    for table in _tables(report):
        shown = RichTable(title=table.title, title_justify="left", box=box.SIMPLE_HEAD)
        for column in table.columns:
            shown.add_column(column, justify="left" if column in _TEXT_COLUMNS else "right")
        for row in table.rows:
            shown.add_row(*row)
        console.print(shown)
        for note in table.notes:
            console.print(f"  {note}", highlight=False)


def _as_dict(report: Report) -> dict[str, object]:
    return {
        "provenance": asdict(report.provenance),
        "settings": asdict(report.settings),
        "cases": [
            {"measured": asdict(comparison), "figures": asdict(figures)}
            for comparison, figures in zip(report.comparisons, report.figures, strict=True)
        ],
        "targets": [asdict(target) | {"met": target.met} for target in report.targets],
    }


def _markdown(report: Report) -> Iterator[str]:
    yield f"# Scorer benchmark: {report.provenance.machine.device}, {report.provenance.date}"
    yield ""
    yield from (f"- {name}: {value}" for name, value in _provenance_lines(report.provenance))
    yield ""
    yield "What the figures mean: [benchmarks/README.md](../README.md)."
    for table in _tables(report):
        yield ""
        yield f"## {table.title}"
        yield ""
        yield f"| {' | '.join(table.columns)} |"
        yield f"|{'|'.join('---' if column in _TEXT_COLUMNS else '---:' for column in table.columns)}|"
        yield from (f"| {' | '.join(row)} |" for row in table.rows)
        if table.notes:
            yield ""
            yield from table.notes


def _provenance_lines(found: Provenance) -> Iterator[tuple[str, str]]:
    machine = found.machine
    yield "Command", f"`{found.command}`"
    yield "Commit", found.commit
    if machine.gpu:
        yield "GPU", machine.gpu
    yield (
        "CPU",
        f"{machine.cpu}, {machine.cores} cores ({', '.join(machine.cpu_flags)}), {machine.memory_gib} GiB; "
        f"{machine.threads} threads for every contender; load {machine.load} before the run",
    )
    yield "Versions", ", ".join(f"{name} {version}" for name, version in found.versions.items())


_TEXT_COLUMNS = ("contender", "type", "case", "target")


def _tables(report: Report) -> Iterator[Table]:
    for comparison, figures in zip(report.comparisons, report.figures, strict=True):
        yield _case_table(comparison, figures)
    if report.targets:
        yield Table(
            title="Targets",
            columns=("case", "target", "wanted", "measured", "met"),
            rows=[
                (
                    target.case,
                    target.what,
                    f"≥ {target.wanted}",
                    f"{target.measured:.2f}",
                    "yes" if target.met else "no",
                )
                for target in report.targets
            ],
            notes=(f"Targets of a {report.provenance.machine.kind}.",),
        )


def _case_table(comparison: Comparison, figures: CaseFigures) -> Table:
    return Table(
        title=f"{comparison.case}",
        columns=(
            "contender",
            "type",
            "rows/s",
            "× reference",
            "lowest to highest",
            "by processor",
            "waste",
            "MFU",
            "load s",
            "max Δ",
        ),
        rows=[_contender_row(name, comparison, figures) for name in comparison.entrants],
        notes=tuple(_notes(comparison, figures)),
    )


def _contender_row(name: Name, comparison: Comparison, figures: CaseFigures) -> tuple[str, ...]:
    entrant, figure = comparison.entrants[name], figures.contenders[name]
    return (
        name,
        entrant.dtype,
        f"{figure.rows_per_second:,.{1 if figure.rows_per_second < 100 else 0}f}",
        _rounded(figure.ratio),
        "" if figure.ratio_range is None else f"{figure.ratio_range[0]:.2f} to {figure.ratio_range[1]:.2f}",
        _rounded(figure.processor_ratio),
        f"{figure.waste:.1%}",
        f"{figure.mfu:.2f}",
        f"{entrant.load_seconds:.1f}",
        "" if entrant.max_difference is None else f"{entrant.max_difference:.1e}",
    )


def _rounded(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def _notes(comparison: Comparison, figures: CaseFigures) -> Iterator[str]:
    rows = comparison.case.rows
    cores = [measured.cores for measured in comparison.rounds]
    peaks = ", ".join(f"{dtype} {peak / 1e12:,.2f}" for dtype, peak in figures.peaks.items())
    yield (
        f"{comparison.tokens / rows:.0f} tokens a row, {comparison.truncated:.0%} of the rows truncated; "
        f"{comparison.operations / rows / 1e9:.1f} GFLOP a row; scores spread by {comparison.score_spread:.2f}; "
        f"median of {comparison.case.repeats} rounds, which had {min(cores):.1f} to {max(cores):.1f} cores. "
        f"Matmul peak in TFLOP/s: {peaks}."
    )
    if comparison.ours is not None:
        yield (
            f"Ours: backend {comparison.ours.backend}, {comparison.ours.max_batch_tokens:,} tokens a batch; "
            f"tokenizer {comparison.ours.tokenizer_rows_per_core_second:,.0f} rows/s per core."
        )
    if figures.end_to_end_share is not None:
        yield (
            f"Ours end to end is {figures.end_to_end_share:.2f} of forward only, "
            f"{figures.end_to_end_processor_share:.2f} by processor time."
        )
    for name, why in comparison.unavailable.items():
        yield f"Without {name}: {why}"
