"""The labels of a zero-shot run: which models choose from them, and what does not go together."""

from dataclasses import replace

from fleet.errors import UsageError
from fleet.given_labels import given_labels
from fleet.model import SEQUENCE_CLASSIFIER, Model
from fleet.recipes import recipe_for
from fleet.zero_shot import HYPOTHESIS_TEMPLATE, ZeroShot, zero_shot_of
from producer.options import RunOptions


def zero_shot(options: RunOptions, model: Model) -> ZeroShot | None:
    """What the options say about labels; None for a model that has labels of its own. Raises UsageError if they are wrong."""
    if not options.labels:
        _check_needs_no_labels(options, model)
        return None
    if options.scorer != SEQUENCE_CLASSIFIER:
        raise UsageError(f"--labels is for the scorer {SEQUENCE_CLASSIFIER}, not for {options.scorer}.")
    return zero_shot_of(
        model,
        given_labels(options.labels),
        hypothesis_template=options.hypothesis_template or HYPOTHESIS_TEMPLATE,
        multi_label=options.multi_label,
    )


def without_labels(options: RunOptions) -> RunOptions:
    """The options for a model with labels of its own, beside one that chooses from the user's."""
    return replace(options, labels=(), multi_label=False, hypothesis_template=None)


def _check_needs_no_labels(options: RunOptions, model: Model) -> None:
    given = {
        "--multi-label": options.multi_label,
        "--hypothesis-template": options.hypothesis_template is not None,
    }
    if wrong := [name for name, value in given.items() if value]:
        raise UsageError(f"{wrong[0]} is for --labels. Add them, or leave {wrong[0]} out.")
    if recipe_for(model, has_labels=True):
        raise UsageError(f"The model {model.name} chooses from labels that you name: add --labels.")
