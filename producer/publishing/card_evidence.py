"""The card's section about its filter: precision and recall by labelled rows, or a note that there is no evidence."""

import re
from collections.abc import Iterable, Sequence

from shardsift.fleet.run.receipt import Receipt
from shardsift.fleet.run.spec import RunSpec
from shardsift.fleet.storage.manifest import scores_revision
from shardsift.producer.evidence.evidence import Evidence
from shardsift.producer.evidence.intervals import Measured, Share
from shardsift.producer.publishing.card_markdown import cell, code, percent_of, table
from shardsift.producer.scores.distribution import lowest_kept

_HEADING, _NEXT = "\n## How good is this filter?\n", "\n## How it was made\n"
_SECTION = re.compile(rf"{re.escape(_HEADING)}.*?(?=\n## |\Z)", re.DOTALL)
_COLUMNS = ("Rows kept", "Precision", "Recall", "Good rows lost", "Bad rows kept")
_BESIDE = 4  # thresholds on each side of the filter's
_MOST_VALUES = 20
_WIDTH = 32  # characters for 0 to 100 % in the picture
_NOT_MEASURED = (
    "There is no evidence yet. To measure a threshold of one score, `producer sample … --output labels.csv` draws rows to label, "
    "and `producer evaluate … --labels labels.csv --update-card` writes precision and recall here."
)


def evidence_section(spec: RunSpec, receipts: Sequence[Receipt], evidence: Evidence | None) -> str:
    """Write the card's section about its filter, after an empty line. If there is no evidence, the section says so.

    Empty if the run has no filter, or publishes only scores.
    """
    if spec.where is None or spec.publishes_only_scores:
        return ""
    at = evidence and evidence.at(lowest_kept(spec.where, evidence.score_column))
    said = _found(spec, receipts, evidence, at) if evidence and at else _NOT_MEASURED
    return f"{_HEADING}\n{said}\n"


def with_section(card: str, section: str) -> str:
    """Replace the card's section about its filter, or insert it if the card has none. Changes nothing else."""
    if found := _SECTION.search(card):
        return f"{card[: found.start()]}{section}{card[found.end() :]}"
    before, following, after = card.partition(_NEXT)
    return f"{before}{section}{following}{after}"


def _found(spec: RunSpec, receipts: Sequence[Receipt], evidence: Evidence, at: Measured) -> str:
    labels, column, place = evidence.labels, cell(evidence.score_column), evidence.thresholds.index(at)
    parts = [
        f"Of the {at.rows_kept:,} rows with {code(spec.where or '')}, {at.precision or 'none'} are good (precision), and about "
        f"{at.bad_kept:,} are bad. Of all good rows, {at.recall} are kept (recall), and about {at.good_lost:,} are lost. "
        "Brackets are 95 % intervals.",
        f"A row is good if {code(evidence.positive)}. {labels.rows:,} rows are labelled (strata of the score: "
        f"{len(evidence.strata):,}), {labels.good:,} of them good: labels in a file, {code(labels.file)}, sha256 "
        f"`{labels.sha256}`.",
    ]
    if evidence.judge:
        parts[1] += (
            f" They are by the model {code(evidence.judge)}: the figures are agreement with that model, not truth."
        )
    if not labels.weighted:
        parts[1] += " The figures assume that each row had the same chance to be labelled."
    sources = {scores_revision(receipts), *(one.scores_from.revision for one in spec.scorings if one.scores_from)}
    if evidence.scores_revision not in sources:
        parts[1] += f" The figures were measured on rows of another run of the same model, {code(evidence.run_id)}."
    some = evidence.thresholds[max(0, place - _BESIDE) : place + _BESIDE + 1]
    parts.append(_table(column, [(f"{one.threshold:.9g}{' (the filter)' if one == at else ''}", one) for one in some]))
    parts.append(_picture(evidence.score_column, evidence.thresholds, at))
    if evidence.values:
        within = cell(evidence.within or "")
        worst = list(evidence.values.items())[:_MOST_VALUES]
        some_of = (
            f", the worst {len(worst)} of {len(evidence.values):,} values" if len(worst) < len(evidence.values) else ""
        )
        parts.append(f"By {within}, with a {column} of at least {evidence.threshold:.9g}{some_of}:")
        parts.append(_table(within, [(cell(value or "none"), one) for value, one in worst]))
    return "\n\n".join(parts)


def _table(head: str, rows: Iterable[tuple[str, Measured]]) -> str:
    lines = (
        (
            name,
            f"{one.rows_kept:,}{percent_of(one.rows_kept, one.rows)}",
            str(one.precision or "-"),
            str(one.recall),
            f"about {one.good_lost:,}",
            f"about {one.bad_kept:,}",
        )
        for name, one in rows
    )
    return table((head, *_COLUMNS), lines).rstrip()


def _picture(column: str, thresholds: Sequence[Measured], at: Measured) -> str:
    """Draw each threshold's precision and recall with their intervals as text, so that the card needs no image file."""
    names = [f"{one.threshold:.9g}" for one in thresholds]
    first = max(map(len, names))
    lines = [f"{'':{first}}  {'precision, 0 to 100 %':{_WIDTH}}  recall, 0 to 100 %"]
    for name, one in zip(names, thresholds, strict=True):
        line = f"{name:>{first}}  {_drawn(one.precision)}  {_drawn(one.recall)}"
        lines.append(f"{line}  the filter" if one is at else line)
    return "\n".join(
        ["```", *lines, "```", f"Thresholds of {code(column)}; ● is the estimate and ━ its 95 % interval."]
    )


def _drawn(share: Share | None) -> str:
    if share is None:
        return "·" * _WIDTH
    low, value, high = (min(_WIDTH - 1, int(_WIDTH * one)) for one in (share.low, share.value, share.high))
    band = "·" * low + "━" * (high - low + 1) + "·" * (_WIDTH - 1 - high)
    return f"{band[:value]}●{band[value + 1 :]}"
