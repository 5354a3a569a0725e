"""The labels of a zero-shot run, as the user names them."""

from collections.abc import Iterable
from pathlib import Path

from fleet.errors import UsageError
from fleet.model import SEQUENCE_CLASSIFIER, Model
from fleet.zero_shot import HYPOTHESIS_TEMPLATE, ZeroShot, entailment_output
from producer.options import RunOptions


def zero_shot(options: RunOptions, model: Model) -> ZeroShot | None:
    """What the options say about labels; None for a model that has labels of its own. Raises UsageError if they are wrong."""
    if options.task != "zero-shot":
        _refuse_options_of_zero_shot(options)
        return None
    if options.scorer != SEQUENCE_CLASSIFIER:
        raise UsageError(f"--task zero-shot is for the scorer {SEQUENCE_CLASSIFIER}, not for {options.scorer}.")
    if entailment_output(model) is None:
        raise UsageError(
            f"The model {model.name} cannot do --task zero-shot: none of its outputs is called entailment; they are "
            f"{', '.join(model.labels)}. Name a model of natural language inference, like facebook/bart-large-mnli."
        )
    _check_template(options.hypothesis_template)
    return ZeroShot(
        labels=_labels(options), hypothesis_template=options.hypothesis_template, multi_label=options.multi_label
    )


def _refuse_options_of_zero_shot(options: RunOptions) -> None:
    given = {
        "--labels": options.labels,
        "--labels-file": options.labels_file,
        "--multi-label": options.multi_label,
        "--hypothesis-template": options.hypothesis_template != HYPOTHESIS_TEMPLATE,
    }
    if wrong := [name for name, value in given.items() if value]:
        raise UsageError(f"{wrong[0]} is for --task zero-shot. Add it, or leave {wrong[0]} out.")


def _check_template(template: str) -> None:
    try:
        one, other = template.format("one"), template.format("other")
    except (ValueError, LookupError, AttributeError):
        one = other = ""
    if one == other:
        raise UsageError(
            f"--hypothesis-template needs {{}} where the label goes, like 'This text is about {{}}.'; it is {template!r}."
        )


def _labels(options: RunOptions) -> tuple[str, ...]:
    if bool(options.labels) == bool(options.labels_file):
        raise UsageError('Say which labels to choose from: either --labels "sport,politics" or --labels-file FILE.')
    labels = tuple(_stripped(options.labels) if options.labels else _lines(Path(options.labels_file or "")))
    if not labels:
        raise UsageError("There are no labels in --labels or --labels-file. Name at least one.")
    if twice := [label for label in labels if labels.count(label) > 1]:
        raise UsageError(f"The label {twice[0]!r} is there twice. Name each label once.")
    return labels


def _lines(file: Path) -> list[str]:
    try:
        return _stripped(file.expanduser().read_text(encoding="utf-8").splitlines())
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(
            f"--labels-file {file} cannot be read: {error}. It holds one label a line, in UTF-8."
        ) from error


def _stripped(labels: Iterable[str]) -> list[str]:
    return [label.strip() for label in labels if label.strip()]
