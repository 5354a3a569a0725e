"""Turn the user's choice of rows to keep into SQL, and check it against the columns, scores and labels."""

import math
import re
import shlex
from collections.abc import Sequence
from dataclasses import replace
from difflib import get_close_matches

import pyarrow as pa

from shardsift.fleet.errors import ShardError, UsageError
from shardsift.fleet.inputs.drop_lists import check_list_columns, described_list
from shardsift.fleet.process.redact import refuse_secrets
from shardsift.fleet.process.wording import first_of
from shardsift.fleet.run.filter import compared_with, filter_of_thread
from shardsift.fleet.run.output_columns import kept_schema
from shardsift.fleet.run.scoring import Scoring
from shardsift.fleet.run.spec import DropList, RunSpec
from shardsift.fleet.scorers.sequence_classifier import configured_threshold
from shardsift.fleet.storage.errors import translated
from shardsift.producer.planning.inputs import NO_SUCH_PLACE, absolute_uri, pinned_uri
from shardsift.producer.planning.options import Condition

NO_LISTS = "none"
_LIST = re.compile(r"(?P<file>.+?)(?::(?P<field>[^/:]+))?=(?P<column>[^=]+)")
_NAMED_LABELS = 10


def choose_rows(spec: RunSpec, choice: Condition, schema: pa.Schema) -> tuple[RunSpec, list[str]]:
    """Return the spec with the filter added, and lines for the user.

    Raises UsageError if the filter does not fit the input or the scores.
    """
    spec = replace(spec, where=condition(choice, spec.scorings))
    check_filter(spec, schema)
    return spec, _kept_lines(choice, spec.scorings)


def condition(choice: Condition, scorings: Sequence[Scoring]) -> str | None:
    """Return SQL for the rows to keep, or None for `--keep-all`.

    If `choice` is empty, uses the threshold in the config of the only model. Raises UsageError if the config has none, if a
    threshold would keep all rows or none, or if there are several models and neither `--where` nor `--keep-all` is given.
    """
    if choice.keep_all:
        return None
    if choice.where is not None:
        return choice.where
    if len(scorings) > 1:
        raise UsageError("Say which rows to keep with --where or --keep-all: a --min-score is for a single model.")
    min_score = _threshold(scorings[0]) if choice.min_score is None else choice.min_score
    if min_score is None:
        raise UsageError("Say which rows to keep: --min-score, --where or --keep-all; `refilter` also has --keep-top.")
    _check_min_score(min_score, scorings[0])
    return f'"{scorings[0].score_column}" >= {min_score}'


def _threshold(scoring: Scoring) -> float | None:
    """Return the threshold that `worker train` wrote into the model's config.

    None if there is none, if the model does not give one raw score, or if the scores come from an earlier run.
    """
    has_raw_score = scoring.outputs == 1 and scoring.function_to_apply == "none"
    return configured_threshold(scoring.model) if has_raw_score and not scoring.scores_from else None


def _check_min_score(min_score: float, scoring: Scoring) -> None:
    function, labels = scoring.function_to_apply, scoring.outputs
    if not math.isfinite(min_score):
        raise UsageError(f"--min-score {min_score:g} is not a number that a score can reach.")
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


def read_lists(given: Sequence[str]) -> tuple[DropList, ...]:
    """Read the files that --drop-list names. Files on the Hub are pinned to their current commit.

    Raises UsageError if a file cannot be used, TransientError if the network fails.
    """
    return tuple(dict.fromkeys(_read_list(one) for one in given if one != NO_LISTS))


def _read_list(given: str) -> DropList:
    parts = _LIST.fullmatch(given)
    if parts is None:
        raise UsageError(f"--drop-list {given!r}: write FILE=COLUMN or FILE:COLUMN=COLUMN, like optout.txt=url.")
    refuse_secrets("--drop-list", parts["file"])
    try:
        with translated(f"Reading the drop list {parts['file']}"):
            uri, _ = pinned_uri(parts["file"])
            return described_list(absolute_uri(uri), parts["field"], parts["column"])
    except ShardError as error:
        raise UsageError(f"--drop-list {given}: {error}") from error
    except NO_SUCH_PLACE as error:
        raise UsageError(f"--drop-list {given} cannot be read: {error}.") from error


def check_filter(spec: RunSpec, schema: pa.Schema) -> None:
    """Raise UsageError if the filter does not fit an input with this schema, or if an added column's name is taken."""
    kept = kept_schema(schema, spec)
    check_list_columns(spec, schema)
    if spec.where:
        filter_of_thread(spec.where, kept)
        for scoring in spec.scorings:
            _check_labels(spec.where, scoring)


def _check_labels(where: str, scoring: Scoring) -> None:
    if scoring.outputs > 1 and (wrong := compared_with(where, scoring.label_column) - {*scoring.labels}):
        label = min(wrong)
        by_lower = {known.lower(): known for known in scoring.labels}
        near = get_close_matches(label.lower(), by_lower, n=1)
        hint = f" Did you mean {by_lower[near[0]]!r}?" if near else ""
        raise UsageError(
            f"The filter {where!r} names a label that {scoring.model.name} does not give: {label!r}.{hint} "
            f"Its labels: {first_of(scoring.labels, _NAMED_LABELS)}."
        )


def _kept_lines(choice: Condition, scorings: Sequence[Scoring]) -> list[str]:
    """Explain `--min-score` for a model with several labels: the score of the best label counts. Empty for other models."""
    if choice.min_score is None or scorings[0].outputs == 1:
        return []
    return [
        f"Rows are kept whose best label, whichever it is, scores {choice.min_score:g} or more. "
        f"For one label: --where {shlex.quote(_of_one_label(scorings[0]))}."
    ]


def _of_one_label(scoring: Scoring) -> str:
    """Return an example for `--where` that keeps rows by the last label.

    In a two-label model, the last label is usually the positive class.
    """
    if not scoring.label_score_columns:
        return f"{scoring.label_column} = '{scoring.labels[-1]}'"
    return f"{scoring.label_score_columns[-1]} >= 0.5"
