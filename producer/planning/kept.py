"""Turn the user's choice of rows into SQL, and refuse thresholds that mean nothing."""

import shlex
from collections.abc import Sequence
from dataclasses import replace

from fleet.errors import UsageError
from fleet.run.scoring import Scoring
from fleet.run.sequence_classifier import threshold_of
from producer.planning.options import RunOptions


def with_threshold(options: RunOptions, scorings: Sequence[Scoring]) -> RunOptions:
    """The options; if they do not say which rows to keep, with the threshold of a single model that has its own."""
    is_chosen = options.min_score is not None or options.where is not None or options.keep_all
    if is_chosen or len(scorings) > 1 or scorings[0].outputs > 1 or scorings[0].function_to_apply != "none":
        return options
    return replace(options, min_score=threshold_of(scorings[0].model))


def condition(options: RunOptions, scorings: Sequence[Scoring]) -> str | None:
    """The rows to keep as SQL; None keeps every row. Raises UsageError for no choice, or one that means nothing."""
    if sum([options.min_score is not None, options.where is not None, options.keep_all]) > 1:
        raise UsageError("Use only one of --min-score, --where and --keep-all.")
    if options.keep_all:
        return None
    if options.where is not None:
        if not options.where.strip():
            raise UsageError("--where is empty: is a shell variable unset? To keep every row, say --keep-all.")
        return options.where
    if len(scorings) > 1:
        raise UsageError("Say which rows to keep with --where or --keep-all: a --min-score is for a single model.")
    if options.min_score is None:
        raise UsageError("Say which rows to keep: --min-score, --where or --keep-all.")
    _check_min_score(options.min_score, scorings[0])
    return f'"{scorings[0].score_column}" >= {options.min_score}'


def kept_lines(options: RunOptions, scorings: Sequence[Scoring]) -> list[str]:
    """Say what a threshold keeps of a model with several labels, whose score is that of the best one."""
    if options.min_score is None or scorings[0].outputs == 1:
        return []
    return [
        f"Rows are kept whose best label, whichever it is, scores {options.min_score:g} or more. "
        f"For one label: --where {shlex.quote(_of_one_label(scorings[0]))}."
    ]


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
        return f"{scoring.label_column} = '{scoring.labels[-1]}'"
    return f"{scoring.label_score_columns[-1]} >= 0.5"
