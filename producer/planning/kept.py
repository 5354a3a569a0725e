"""The rows that a run keeps, as the user says it, and refusals of thresholds that mean nothing."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace

from fleet.errors import UsageError
from fleet.run.scoring import Scoring
from fleet.run.sequence_classifier import threshold_of


@dataclass(frozen=True, kw_only=True)
class Choice:
    """Which rows to keep, as the user says it."""

    min_score: float | None
    where: str | None
    keep_all: bool

    @property
    def is_default(self) -> bool:
        return self.min_score is None and self.where is None and not self.keep_all

    def condition(self, score_column: str) -> str | None:
        """As SQL; None keeps every row. Raises UsageError for an empty condition, and for more than one."""
        if sum([self.min_score is not None, self.where is not None, self.keep_all]) > 1:
            raise UsageError("Use only one of --min-score, --where and --keep-all.")
        if self.where is not None and not self.where.strip():
            raise UsageError("--where is empty: is a shell variable unset? To keep every row, say --keep-all.")
        if self.keep_all:
            return None
        if self.where is not None:
            return self.where
        return f"{_quoted(score_column)} >= {self.min_score}"


def with_threshold(choice: Choice, scorings: Sequence[Scoring]) -> Choice:
    """The choice, or if there is none the model's own threshold. Raises UsageError if it has none, or the choice is wrong."""
    if choice.is_default and len(scorings) == 1:
        if scorings[0].outputs == 1 and scorings[0].function_to_apply == "none":
            choice = replace(choice, min_score=threshold_of(scorings[0].model))
        if choice.is_default:
            raise UsageError(
                "Say which rows to keep: --min-score, --where or --keep-all. "
                f"The model {scorings[0].model.name} has no threshold of its own."
            )
    check_choice(choice, scorings)
    return choice


def check_choice(choice: Choice, scorings: Sequence[Scoring]) -> None:
    """Raises UsageError if the choice does not say which of several models it is about, or keeps no row, or every row."""
    if len(scorings) > 1 and choice.where is None and not choice.keep_all:
        raise UsageError(
            f'Say which rows to keep with --where, like "{" and ".join(map(_example, scorings))}", or --keep-all: '
            "a --min-score is for a single model."
        )
    if choice.min_score is not None:
        _check_min_score(choice.min_score, scorings[0])


def _check_min_score(min_score: float, scoring: Scoring) -> None:
    function, labels = scoring.function_to_apply, scoring.outputs
    if function != "none" and min_score > 1:
        raise UsageError(
            f"--min-score {min_score:g} keeps no row: these scores are probabilities from 0 to 1, by {function}."
        )
    if function == "softmax" and min_score <= 1 / labels:
        raise UsageError(
            f"--min-score {min_score:g} keeps every row: {scoring.score_column} is the probability of the best of {labels} "
            f"labels, which is never below 1/{labels}. Name a label: --where {shlex.quote(_of_one_label(scoring))}."
        )
    if function == "sigmoid" and min_score <= 0:
        raise UsageError(f"--min-score {min_score:g} keeps every row: these scores are from 0 to 1. Say --keep-all.")


def _of_one_label(scoring: Scoring) -> str:
    """A condition on the last label, which of two is that of the rows that are looked for."""
    if not scoring.label_score_columns:
        return f"{_column(scoring.label_column)} = '{scoring.labels[-1]}'"
    return f"{_column(scoring.label_score_columns[-1])} >= 0.5"


def _column(name: str) -> str:
    """A column's name in SQL, in quotes if it needs them."""
    return name if name.isascii() and name.isidentifier() else _quoted(name)


def _quoted(name: str) -> str:
    escaped = name.replace('"', '""')
    return f'"{escaped}"'


def kept_told(choice: Choice, scorings: Sequence[Scoring]) -> str | None:
    """A line about what a threshold keeps, if it is not that of a single output."""
    if choice.min_score is None or scorings[0].outputs == 1:
        return None
    return (
        f"Rows are kept whose best label, whichever it is, scores {choice.min_score:g} or more. "
        f"For one label: --where {shlex.quote(_of_one_label(scorings[0]))}."
    )


def _example(scoring: Scoring) -> str:
    if scoring.outputs > 1:  # its score is that of the best label, whichever that is
        return f"{scoring.label_column} = '{scoring.labels[0]}'"
    return f"{scoring.score_column} >= {3 if scoring.function_to_apply == 'none' else 0.5}"
