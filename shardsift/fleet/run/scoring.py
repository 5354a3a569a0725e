"""A scoring: one model applied to one text of each row, and the columns that it adds."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain, count

from shardsift.fleet.errors import UsageError
from shardsift.fleet.process.wording import local_path
from shardsift.fleet.run.choices import PASSAGES, Dtype, Function, Pool, is_passages
from shardsift.fleet.run.model import UNKNOWN_FIELDS_REFUSED, Model

# Zero-shot classification: a model of natural language inference judges labels in the user's words. Needs no torch.

HYPOTHESIS_TEMPLATE = "This example is {}."  # transformers' default
LABELS_FILE = "labels.txt"  # for labels that cannot be written in a command


@dataclass(frozen=True, kw_only=True)
class ZeroShot:
    """The labels of a zero-shot scoring. A label's score tells how far the text entails the label's hypothesis."""

    __pydantic_config__ = UNKNOWN_FIELDS_REFUSED

    labels: tuple[str, ...]
    hypothesis_template: str = HYPOTHESIS_TEMPLATE
    multi_label: bool = False  # whether several labels may be true of a text

    @property
    def hypotheses(self) -> tuple[str, ...]:
        return tuple(self.hypothesis_template.format(label) for label in self.labels)

    @property
    def judges_each_alone(self) -> bool:
        """Whether a label's score depends on that label alone. Otherwise the scores of all labels add up to 1."""
        return self.multi_label or len(self.labels) == 1

    @property
    def function(self) -> Function:
        return "sigmoid" if self.judges_each_alone else "softmax"


def zero_shot_of(model: Model, labels: Sequence[str], *, hypothesis_template: str, multi_label: bool) -> ZeroShot:
    """Make the labels of a zero-shot scoring.

    Raises UsageError if the model has no output for entailment, if there are no labels or two equal ones, or if the
    template has no place for the label.
    """
    if entailment_output(model) is None:
        raise UsageError(
            f"The model {model.name} cannot choose from --labels: none of its outputs is called entailment; they are "
            f"{', '.join(model.labels)}. Name a model of natural language inference, like facebook/bart-large-mnli."
        )
    _check_template(hypothesis_template)
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
    """Return the index of the model's output for "entailment", found by its name. None if there is none."""
    found = (number for number, label in enumerate(model.labels) if label.lower().startswith("entail"))
    return next(found, None)


_NOT_IN_NAMES = re.compile(r"\W+")
_MOST_LABEL_COLUMNS = 256  # with more labels, there is no score column for each, but all logits are stored

_MOST_LABEL_HISTOGRAMS = 16


@dataclass(frozen=True, kw_only=True)
class Scoring:
    """One model applied to one text of each row. The names of its columns derive from `score_column`."""

    __pydantic_config__ = UNKNOWN_FIELDS_REFUSED

    model: Model
    dtype: Dtype  # precision of the model
    text_columns: tuple[str, ...]  # joined with blank lines, or used in the template
    text_pair_column: str | None = None  # the second text, for models that score pairs
    text_template: str | None = None  # such as "{url}\n\n{text}"
    score_column: str
    function_to_apply: Function = "none"  # turns logits into scores
    int_score: bool = False  # add FineWeb-Edu's rounded score
    max_tokens: int | None = None  # of a text or passage; None: the model's limit
    passages: str = "head"  # what to read of a longer text; see shardsift/fleet/run/choices.py
    pool: Pool = "max"  # how to combine the logits of a text's passages
    zero_shot: ZeroShot | None = None  # replaces the model's own labels
    scores_from: Model | None = None  # an earlier run whose scores are used instead of the model

    @property
    def labels(self) -> tuple[str, ...]:
        return self.zero_shot.labels if self.zero_shot else self.model.labels

    @property
    def outputs(self) -> int:
        return len(self.labels)

    @property
    def served_by(self) -> Model:
        """The model that a worker loads for this scoring. It may be an earlier run, whose scores are read."""
        return self.scores_from or self.model

    @property
    def queue(self) -> str:
        return self.served_by.queue(self.dtype)

    @property
    def int_score_column(self) -> str:
        return f"int_{self.score_column}"

    @property
    def label_column(self) -> str:
        """The column of the label: `label` for `score`, `tox_label` for `tox_score`, `quality_label` for `quality`."""
        if self.score_column == "score":
            return "label"
        return f"{self.score_column.removesuffix('_score')}_label"

    @property
    def label_score_columns(self) -> tuple[str, ...]:
        """The columns of the labels' scores: `score_POSITIVE`, `score_climate_change`.

        Empty for one label or very many.
        """
        if not 1 < self.outputs <= _MOST_LABEL_COLUMNS:
            return ()
        taken = {self.label_column.lower(), self.logits_column.lower()}  # in lower case, because SQL ignores the case
        columns = []
        for label in self.labels:
            name = f"{self.score_column}_{_NOT_IN_NAMES.sub('_', label).strip('_')}"
            numbered = chain([name], (f"{name}_{number}" for number in count(2)))
            column = next(column for column in numbered if column.lower() not in taken)
            taken.add(column.lower())
            columns.append(column)
        return tuple(columns)

    @property
    def label_histogram_columns(self) -> tuple[str, ...]:
        """The label columns that get a histogram. Empty if there are many labels, so that receipts stay small."""
        return self.label_score_columns if self.outputs <= _MOST_LABEL_HISTOGRAMS else ()

    @property
    def logits_column(self) -> str:
        """The name of the column of all logits. Only scores files have this column, and only if `has_logits_column`."""
        return f"{self.score_column}_logits"

    @property
    def has_logits_column(self) -> bool:
        return self.outputs > 1 or self.function_to_apply != "none"

    @property
    def output_columns(self) -> tuple[str, ...]:
        label = (self.label_column,) if self.outputs > 1 else ()
        rounded = (self.int_score_column,) if self.int_score else ()
        return (self.score_column, *label, *self.label_score_columns, *rounded)


def score_column_of(name: str) -> str:
    """Return the score column of a model called `name`: `edu_score` for `edu`.

    Raises UsageError for an unusable name.
    """
    if not (name.isascii() and name.isidentifier()):
        raise UsageError(f"--model: {name!r} cannot name columns. Use letters, digits and _, as in edu=MODEL.")
    return f"{name}_score"


def name_and_model(text: str) -> tuple[str | None, str]:
    """Split [NAME=]MODEL into name and model. The name is None if there is none.

    Does not split the path of an existing folder, or at an equals sign after a slash, because it belongs to a path.
    Raises UsageError for a name that cannot be used in the names of columns.
    """
    name, equals, model = text.partition("=")
    if not equals or "/" in name or local_path(text).is_dir():
        return None, text
    score_column_of(name)
    return name, model


def check_names_differ(names: Iterable[str]) -> None:
    """Raise UsageError if two models have the same name. Ignores the case, as SQL does."""
    counts = Counter(name.lower() for name in names)
    if twice := [name for name, count in counts.items() if count > 1]:
        raise UsageError(f"Two models are called {twice[0]}. Give each a name of its own: it names its columns.")


def check_scoring(scoring: Scoring) -> None:
    """Raise UsageError unless `passages` is a known way to read long texts and options fit each other and the model."""
    if scoring.function_to_apply == "softmax" and scoring.outputs == 1:
        raise UsageError("Softmax makes every score of a model with one output 1. Apply sigmoid, or none.")
    passages, most = scoring.passages, scoring.max_tokens
    if not is_passages(passages):
        raise UsageError(f"--passages must be {PASSAGES}, not {passages!r}.")
    if scoring.text_pair_column is not None and (passages != "head" or scoring.zero_shot):
        other = "--labels" if scoring.zero_shot else "--passages"
        raise UsageError(f"--text-pair-column does not go with {other}. Leave one out.")
    if passages == "finepdfs" and scoring.zero_shot:
        raise UsageError("--passages finepdfs does not go with --labels. Choose another way to read long texts.")
    stride = int(passages.partition(":")[2] or 0)
    if most and stride > most:
        raise UsageError(
            f"--passages {passages} would leave out tokens between passages of {most}. Choose a smaller stride."
        )
