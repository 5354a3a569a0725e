"""Zero-shot classification: labels in the user's words, which a model of natural language inference judges. Needs no torch."""

from dataclasses import dataclass

from fleet.choices import Function
from fleet.model import Model

HYPOTHESIS_TEMPLATE = "This example is {}."  # transformers' default


@dataclass(frozen=True, kw_only=True)
class ZeroShot:
    """The labels of a scoring. A label's score says how far the text entails the template with the label in it."""

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


def entailment_output(model: Model) -> int | None:
    """The model's output for "the text entails the hypothesis", by its name; None if the model has no such output."""
    found = (number for number, label in enumerate(model.labels) if label.lower().startswith("entail"))
    return next(found, None)
