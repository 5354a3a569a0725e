"""The distributions of a run's scores as text and as JSON, with what the run's own filter keeps."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass

from fleet.counted import counted
from producer.scores.distribution import QUANTILES, Distribution

_BAR = 40  # characters
_MOST_LABELS = 20


@dataclass(frozen=True, kw_only=True)
class ScoreReport:
    """`shards_done` of `shards` are in it. `where` is the run's filter, which has kept `rows_kept`."""

    name: str  # the run's id, or where it is published
    shards: int
    shards_done: int
    rows: int
    errors: dict[str, int]  # reason → rows
    where: str | None
    rows_kept: int
    distributions: tuple[Distribution, ...]

    def as_json(self) -> dict[str, object]:
        return asdict(self) | {"distributions": [_as_json(one) for one in self.distributions]}

    def lines(self) -> list[str]:
        return [
            f"scores   {self.name}",
            f"shards   {self.shards_done:,} of {self.shards:,}",
            f"rows     {self.rows:,} in{_errored(self.errors)}",
            f"kept     {self.rows_kept:,} ({_share(self.rows_kept, self.rows)}) by {self.where or '--keep-all'}",
            *(line for one in self.distributions for line in ["", *_lines_of(one)]),
        ]


def _as_json(one: Distribution) -> dict[str, object]:
    return asdict(one) | {
        "quantiles": {str(share): one.quantile(share) for share in QUANTILES} if one.rows else {},
        "keep_rates": [
            {"threshold": threshold, "rows": one.at_least(threshold), "share": one.at_least(threshold) / one.rows}
            for threshold in one.thresholds()
        ],
    }


def _errored(errors: dict[str, int]) -> str:
    told = ", ".join(f"{rows:,} {reason}" for reason, rows in errors.items())
    return f", {told} (errored)" if told else ""


def _share(rows: int, of: int) -> str:
    return f"{rows / of:.2%}" if of else "0 %"


def _lines_of(one: Distribution) -> Iterator[str]:
    yield f"{one.column}: {counted(one.rows, 'row')} with a score"
    if not one.rows:
        return
    yield "  " + ", ".join(f"{_named(share)} {one.quantile(share):g}" for share in QUANTILES)
    yield ""
    yield from _bars(one)
    yield ""
    yield "  threshold         rows at or above"
    for threshold in one.thresholds():
        rows = one.at_least(threshold)
        yield f"  >= {threshold:<6g}  {rows:>15,}  {_share(rows, one.rows):>8}{_rounded(one, threshold)}"
    yield from _labels(one)


def _named(share: float) -> str:
    return {0.0: "lowest", 0.5: "median", 1.0: "highest"}.get(share, f"{share:.0%}")


def _bars(one: Distribution) -> Iterator[str]:
    bins = one.histogram(one.bin_width())
    most = max(bins.values())
    for edge, rows in bins.items():
        yield f"  {edge:>8g}  {'█' * round(_BAR * rows / most):<{_BAR}}  {rows:,}"


def _rounded(one: Distribution, threshold: float) -> str:
    """A filter on the score and one on FineWeb-Edu's rounded score keep different rows: 2.6 is rounded to 3."""
    if not one.int_scores or threshold != int(threshold):
        return ""
    rows = sum(rows for score, rows in one.int_scores.items() if score >= threshold)
    return f"    int_{one.column} >= {threshold:g} keeps {rows:,}: it is the score rounded, half to even"


def _labels(one: Distribution) -> Iterator[str]:
    if not one.labels:
        return
    yield ""
    width = max(map(len, one.labels))
    for label, rows in list(one.labels.items())[:_MOST_LABELS]:
        yield f"  {label:<{width}}  {rows:>15,}  {_share(rows, one.rows):>8}"
    if len(one.labels) > _MOST_LABELS:
        yield f"  and {len(one.labels) - _MOST_LABELS:,} more labels; --json has all"
