"""Draw how good a filter is: precision and recall over the threshold, and the share of good labels in each stratum."""

from shardsift.fleet.errors import UsageError
from shardsift.producer.evidence.evaluation import Evaluation
from shardsift.producer.evidence.intervals import share_of_good
from shardsift.producer.scores.distribution import png_of

_MOST_STRATA = 40  # only the largest strata are drawn


def evaluation_picture(evaluation: Evaluation) -> bytes:
    """Draw an evaluation as a PNG. Equal evaluations give equal bytes. Raises UsageError if matplotlib is not installed."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise UsageError("A picture needs matplotlib. Install it with: pip install 'shardsift[tune]'") from error
    largest = sorted(evaluation.labelled_strata, key=lambda one: -one.rows)[:_MOST_STRATA]
    strata = [one for one in evaluation.labelled_strata if one in largest]
    figure = Figure(figsize=(12.8, 4.8 + 0.1 * len(strata)), layout="constrained")
    FigureCanvasAgg(figure)
    by = f" by {evaluation.judge}" if evaluation.judge else ""
    figure.suptitle(f"{evaluation.labels.rows:,} labels{by}, good: {evaluation.positive}")
    shares, reliability = figure.subplots(1, 2)
    for name in ("precision", "recall"):
        found = [(one.threshold, share) for one in evaluation.thresholds if (share := getattr(one, name))]
        at = [threshold for threshold, _ in found]
        (line,) = shares.plot(at, [100 * share.value for _, share in found], marker=".", label=name)
        low, high = ([100 * getattr(share, limit) for _, share in found] for limit in ("low", "high"))
        shares.fill_between(at, low, high, color=line.get_color(), alpha=0.2, linewidth=0)
    if evaluation.threshold is not None:
        shares.axvline(evaluation.threshold, color="tab:green", label=f"threshold {evaluation.threshold:g}")
    shares.set_xlabel(evaluation.score_column)
    shares.set_ylabel("%" if evaluation.agreement else "%, with 95 % intervals")
    shares.legend()
    for place, one in enumerate(strata):
        share = share_of_good(one.part)
        reliability.plot(
            [100 * share.low, 100 * share.high],
            [place, place],
            color="tab:blue",
            alpha=0.4,
            linewidth=6,
            solid_capstyle="butt",
        )
        reliability.plot([100 * share.value], [place], marker="o", color="tab:blue")
    reliability.set_yticks(range(len(strata)), [str(one.stratum) for one in strata], fontsize="small")
    reliability.set_xlabel("good rows of the stratum, %")
    reliability.set_xlim(-2, 102)
    for panel in (shares, reliability):
        panel.grid(visible=True)
    return png_of(figure)
