"""Compute rates, ratios, waste and MFU from the measurements. Pure arithmetic."""

from collections.abc import Iterable
from dataclasses import dataclass
from statistics import median

from benchmarks.scorer.case import Name
from benchmarks.scorer.compare import Comparison


@dataclass(frozen=True, kw_only=True)
class ContenderFigures:
    rows_per_second: float  # from the median of the rounds
    ratio: float | None  # median over the rounds of the ratio to the reference; None without a reference
    ratio_range: tuple[float, float] | None  # lowest and highest ratio of the rounds
    processor_ratio: float | None  # the same by processor time
    waste: float  # share of padding among the tokens that went through the model
    mfu: float  # useful operations ÷ (median time × peak of a matmul in this run)


@dataclass(frozen=True, kw_only=True)
class CaseFigures:
    contenders: dict[Name, ContenderFigures]
    peaks: dict[str, float]  # operations per second, by number format
    end_to_end_share: float | None  # rate of ours from a file (otherwise from texts), relative to ours from token ids
    end_to_end_processor_share: float | None


def figures_of(comparison: Comparison, peaks: dict[str, float]) -> CaseFigures:
    end_to_end = Name.OURS_SHARD if Name.OURS_SHARD in comparison.entrants else Name.OURS
    shares, processor_shares = _ratios(comparison, Name.OURS_FORWARD, end_to_end)
    return CaseFigures(
        contenders={name: _contender_figures(comparison, name, peaks) for name in comparison.entrants},
        peaks={dtype: peaks[dtype] for dtype in sorted({entrant.dtype for entrant in comparison.entrants.values()})},
        end_to_end_share=_median(shares),
        end_to_end_processor_share=_median(processor_shares),
    )


def best_peaks(comparisons: Iterable[Comparison]) -> dict[str, float]:
    """Return the highest peak over all rounds of one model, by number format.

    Other work on the machine only makes a matmul slower.
    """
    peaks: dict[str, float] = {}
    for measured in (measured for comparison in comparisons for measured in comparison.rounds):
        for dtype, peak in measured.peaks.items():
            peaks[dtype] = max(peak, peaks.get(dtype, 0))
    return peaks


def _contender_figures(comparison: Comparison, name: Name, peaks: dict[str, float]) -> ContenderFigures:
    entrant = comparison.entrants[name]
    seconds = median(measured.seconds[name] for measured in comparison.rounds)
    ratios, processor_ratios = _ratios(comparison, Name.REFERENCE, name)
    return ContenderFigures(
        rows_per_second=comparison.case.rows / seconds,
        ratio=_median(ratios),
        ratio_range=(min(ratios), max(ratios)) if ratios else None,
        processor_ratio=_median(processor_ratios),
        waste=1 - comparison.tokens / entrant.tokens_sent,
        mfu=comparison.operations / seconds / peaks[entrant.dtype],
    )


def _ratios(comparison: Comparison, slower: Name, faster: Name) -> tuple[list[float], list[float]]:
    """Return the speed ratios of two contenders in each round, by time and by processor time. Empty unless both took part."""
    if not {slower, faster} <= comparison.entrants.keys():
        return [], []
    return (
        [measured.seconds[slower] / measured.seconds[faster] for measured in comparison.rounds],
        [measured.processor_seconds[slower] / measured.processor_seconds[faster] for measured in comparison.rounds],
    )


def _median(values: list[float]) -> float | None:
    return median(values) if values else None
