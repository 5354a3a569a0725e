"""The results of the contenders as tables, and as JSON with all measurements. Knows no models."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.results import Provenance, Table, markdown, write_results
from benchmarks.scorer.case import Model, Name
from benchmarks.scorer.compare import Comparison
from benchmarks.scorer.figures import CaseFigures, best_peaks, figures_of
from benchmarks.scorer.ours import OurSettings

_SPEEDS = ("rows/s", "× reference", "lowest to highest", "by processor")
_COLUMNS = ("contender", "type", *_SPEEDS, "waste", "MFU", "load s", "max Δ")


@dataclass(frozen=True, kw_only=True)
class Report:
    provenance: Provenance
    settings: OurSettings
    comparisons: list[Comparison]
    threads: int  # of torch, the same for all contenders

    @property
    def figures(self) -> list[CaseFigures]:
        return [figures_of(comparison, self._peaks(comparison.case.model)) for comparison in self.comparisons]

    def _peaks(self, model: Model) -> dict[str, float]:
        return best_peaks(comparison for comparison in self.comparisons if comparison.case.model is model)

    def markdown(self) -> str:
        facts = {"Threads": f"{self.threads} for every contender", "What the figures mean": "benchmarks/README.md"}
        return markdown("Scorer benchmark", self.provenance, facts, list(_tables(self)))

    def write(self, folder: Path, *, part: str = "") -> tuple[Path, Path]:
        """Write `<date>-<device>.json` and `.md`. `part` names the part of the plan."""
        found = {
            "settings": asdict(self.settings),
            "threads": self.threads,
            "cases": [
                {"measured": asdict(comparison), "figures": asdict(figures)}
                for comparison, figures in zip(self.comparisons, self.figures, strict=True)
            ],
        }
        as_json = write_results(part, self.provenance, found, folder)
        as_markdown = as_json.with_suffix(".md")
        as_markdown.write_text(self.markdown(), encoding="utf-8")
        return as_json, as_markdown


def _tables(report: Report) -> Iterator[Table]:
    for comparison, figures in zip(report.comparisons, report.figures, strict=True):
        yield Table(
            title=str(comparison.case),
            columns=_COLUMNS,
            names=2,
            rows=[_contender_row(name, comparison, figures) for name in comparison.entrants],
            notes=list(_notes(comparison, figures)),
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
