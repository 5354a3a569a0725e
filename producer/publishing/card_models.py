"""The card's part about the models: the text that each scored, the device, and the difference from float32."""

from collections import Counter
from collections.abc import Iterable, Sequence

from shardsift.fleet.process.wording import counted
from shardsift.fleet.run.model import SEQUENCE_CLASSIFIER, Model
from shardsift.fleet.run.receipt import Parity, Receipt
from shardsift.fleet.run.scoring import Scoring
from shardsift.fleet.run.spec import RunSpec, disclosed_model
from shardsift.producer.publishing.card_markdown import HUB_DATASET, cell, hub_link, table

_NAMES = ("Model", "Scored text", "Zero-shot", "Scores from", "Scored in", "Against float32")  # rows of the table


def model_rows(spec: RunSpec, receipts: Sequence[Receipt]) -> str:
    """Write the lines about the model for the card's table. Empty if there are several models."""
    if len(spec.scorings) > 1:
        return ""
    return "".join(f"| {name} | {value} |\n" for name, value in _said_of(spec, 0, receipts).items())


def models_section(spec: RunSpec, receipts: Sequence[Receipt]) -> str:
    """Write a table with a column for each model. Empty if there is only one model."""
    if len(spec.scorings) == 1:
        return ""
    said = [_said_of(spec, index, receipts) for index in range(len(spec.scorings))]
    names = [name for name in _NAMES if any(name in one for one in said)]
    head = ("", *(cell(scoring.score_column) for scoring in spec.scorings))
    return "\n## Models\n\n" + table(head, ((name, *(one.get(name, "") for one in said)) for name in names))


def kinds_of_models(spec: RunSpec) -> str:
    """Name the kinds: `a text classifier`, or `2 text classifiers and a zero-shot classifier`."""
    kinds = Counter(map(_kind, spec.scorings))
    return " and ".join(f"a {kind}" if count == 1 else f"{count} {kind}s" for kind, count in kinds.items())


def model_name(model: Model) -> str:
    name = disclosed_model(model)
    return hub_link(name) if is_hub_model(model) else cell(name)


def is_hub_model(model: Model) -> bool:
    return is_classifier(model) and not model.is_folder


def is_classifier(model: Model) -> bool:
    return model.scorer == SEQUENCE_CLASSIFIER


def _kind(scoring: Scoring) -> str:
    if scoring.zero_shot:
        return "zero-shot classifier"
    return "text classifier" if is_classifier(scoring.model) else "scorer"


def _said_of(spec: RunSpec, index: int, receipts: Sequence[Receipt]) -> dict[str, str]:
    scoring = spec.scorings[index]
    said = {
        "Model": f"{model_name(scoring.model)} at revision `{scoring.model.revision}`{_of_kind(scoring.model)}",
        "Scored text": _scored_text(scoring),
    }
    if scoring.zero_shot:
        alone = ", each judged by itself" if scoring.zero_shot.judges_each_alone else ""
        said["Zero-shot"] = (
            f"{cell(scoring.zero_shot.hypothesis_template)} with {counted(scoring.outputs, 'label')}{alone}"
        )
    if scoring.scores_from and not spec.is_in_place and (stored := HUB_DATASET.match(scoring.scores_from.name)):
        said["Scores from"] = hub_link(stored[1], "datasets/") + (f" at `{stored[2]}`" if stored[2] else "")
    ways, parities = set[str](), set[Parity | None]()
    for receipt in receipts:
        made = receipt.scorings[index]
        ways.add(f"{made.format_line} on {receipt.scored_by.device} ({made.backend})")
        parities.add(made.parity)
    said["Scored in"] = ", ".join(sorted(ways))
    if is_classifier(scoring.model):
        said["Against float32"] = _parity(parities, has_filter=spec.where is not None)
    return said


def _scored_text(scoring: Scoring) -> str:
    read = (
        cell(scoring.text_template.replace("\n", "\\n"))
        if scoring.text_template
        else " and ".join(map(cell, scoring.text_columns))
    )
    read += f" paired with {cell(scoring.text_pair_column)}" if scoring.text_pair_column else ""
    limit = f", at most {scoring.max_tokens:,} tokens" if scoring.max_tokens else ""
    passages = (
        f", in passages ({scoring.passages}), whose logits are pooled by {scoring.pool}"
        if scoring.passages != "head"
        else ""
    )
    return f"{read}{limit}{passages}"


def _of_kind(model: Model) -> str:
    return "" if is_classifier(model) else f" of the scorer `{model.scorer}`"


def _parity(found: Iterable[Parity | None], *, has_filter: bool) -> str:
    """Describe the largest difference that a worker measured at its start between its logits and those in float32."""
    tried = [parity for parity in found if parity]
    if not tried:
        return "not tried"
    texts = counted(min(parity.rows for parity in tried), "sample text")
    all_of_them, most = (
        f"{max(errors):.2g}" for errors in zip(*((p.max_error, p.p999_error) for p in tried), strict=True)
    )
    closer = f", 99.9 % of them by at most {most}" if most != all_of_them else ""
    return f"logits of {texts} differ by at most {all_of_them}{closer}{_verdicts(tried) if has_filter else ''}"


def _verdicts(tried: list[Parity]) -> str:
    judged = [(parity.flipped_share, parity.rows) for parity in tried if parity.flipped_share is not None]
    if not judged:
        return ""
    share, rows = max(judged)
    return f"; {round(share * rows):,} of {counted(rows, 'text')} on the other side of the filter"
