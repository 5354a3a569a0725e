"""The labels of a zero-shot run: which models choose from them, and what does not go together."""

from dataclasses import replace

from fleet.errors import UsageError
from fleet.given_labels import given_labels
from fleet.model import SEQUENCE_CLASSIFIER, Model
from fleet.zero_shot import HYPOTHESIS_TEMPLATE, ZeroShot, zero_shot_of
from producer.options import RunOptions


def zero_shot(options: RunOptions, model: Model) -> ZeroShot | None:
    """What the options say about labels; None for a model that has labels of its own. Raises UsageError if they are wrong."""
    if options.task != "zero-shot":
        _refuse_options_of_zero_shot(options)
        return None
    if options.scorer != SEQUENCE_CLASSIFIER:
        raise UsageError(f"--task zero-shot is for the scorer {SEQUENCE_CLASSIFIER}, not for {options.scorer}.")
    return zero_shot_of(
        model,
        given_labels(options.labels, options.labels_file),
        hypothesis_template=options.hypothesis_template,
        multi_label=options.multi_label,
    )


def without_labels(options: RunOptions) -> RunOptions:
    """The options for a model with labels of its own, beside one that chooses from the user's."""
    return replace(
        options,
        task="classification",
        labels=(),
        labels_file=None,
        multi_label=False,
        hypothesis_template=HYPOTHESIS_TEMPLATE,
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
