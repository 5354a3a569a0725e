"""Zero-shot classification: labels in the user's words, which a model of natural language inference judges. Needs no torch."""

from collections.abc import Sequence
from dataclasses import dataclass

from fleet.choices import Function
from fleet.errors import UsageError
from fleet.model import UNKNOWN_FIELDS_REFUSED, Model

HYPOTHESIS_TEMPLATE = "This example is {}."  # transformers' default


@dataclass(frozen=True, kw_only=True)
class ZeroShot:
    """The labels of a scoring. A label's score says how far the text entails the template with the label in it."""

    __pydantic_config__ = UNKNOWN_FIELDS_REFUSED

    labels: tuple[str, ...]
    hypothesis_template: str = HYPOTHESIS_TEMPLATE
    multi_label: bool = False  # more than one label can be true of a text

    @property
    def hypotheses(self) -> tuple[str, ...]:
        return tuple(self.hypothesis_template.format(label) for label in self.labels)

    @property
    def judges_each_alone(self) -> bool:
        """Whether a label's score depends on that label alone. Otherwise the scores of all labels add up to 1."""
        return self.multi_label or len(self.labels) == 1

    @property
    def function(self) -> Function:
        """What turns the logits of the labels into the scores of transformers' pipeline."""
        return "sigmoid" if self.judges_each_alone else "softmax"


def zero_shot_of(
    model: Model, labels: Sequence[str], *, hypothesis_template: str = HYPOTHESIS_TEMPLATE, multi_label: bool = False
) -> ZeroShot:
    """The labels, checked. Raises UsageError for a model, labels or a template that cannot be used."""
    if entailment_output(model) is None:
        raise UsageError(
            f"The model {model.name} cannot choose from --labels: none of its outputs is called entailment; they are "
            f"{', '.join(model.labels)}. Name a model of natural language inference, like facebook/bart-large-mnli."
        )
    _check_template(hypothesis_template)
    if odd := [label for label in labels if not isinstance(label, str)]:
        raise UsageError(f"--labels takes texts, and {odd[0]!r} is not a text.")
    stripped = tuple(label.strip() for label in labels if label.strip())
    if not stripped:
        raise UsageError("There are no labels in --labels. Name at least one.")
    if twice := [label for label in stripped if stripped.count(label) > 1]:
        raise UsageError(f"The label {twice[0]!r} is there twice. Name each label once.")
    return ZeroShot(labels=stripped, hypothesis_template=hypothesis_template, multi_label=multi_label)


def _check_template(template: str) -> None:
    try:
        one, other = template.format("one"), template.format("other")
    except (ValueError, LookupError, AttributeError):
        one = other = ""
    if one == other:
        raise UsageError(
            f"--hypothesis-template needs one {{}} where the label goes, like 'This text is about {{}}.'; it is {template!r}."
        )


def entailment_output(model: Model) -> int | None:
    """The model's output for "the text entails the hypothesis", by its name; None if the model has no such output."""
    found = (number for number, label in enumerate(model.labels) if label.lower().startswith("entail"))
    return next(found, None)
