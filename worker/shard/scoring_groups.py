"""Load the scorers of several models, and group scorings that share work: tokenized texts, or an encoder."""

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from shardsift.fleet.errors import ShardError
from shardsift.fleet.process.settings import Settings
from shardsift.fleet.run.model import Model
from shardsift.fleet.run.scoring import Scoring, entailment_output
from shardsift.fleet.run.text import texts_key
from shardsift.fleet.scorers.kinds import scorer_kind
from shardsift.worker.scoring import (
    Hypotheses,
    ModelError,
    ModelScorer,
    NoRoom,
    Reading,
    Scorer,
    Scores,
)


def load_scorers(models: Sequence[Model], settings: Settings) -> Iterator[Scorer[Any]]:
    """Load a scorer for each model in turn. Raises NoRoom if one does not fit beside the loaded ones."""
    for number, model in enumerate(models):
        try:
            yield scorer_kind(model.scorer).load(model, settings)
        except NoRoom as error:
            names = " and ".join(model.name for model in models[:number])
            if not names:
                raise
            advice = f"{error} {names} is loaded there already: use a larger device, or a run for each model."
            raise NoRoom(advice) from error


@dataclass(frozen=True, kw_only=True)
class ScoringGroup:
    """Scorings of the same texts that one scorer computes together. The scorer returns their outputs side by side."""

    numbers: tuple[int, ...]  # indices in the run's scorings
    scorings: tuple[Scoring, ...]
    scorer: Scorer[Any]
    encoding: Hashable  # groups with equal values give texts the same tokens

    def joined(self, scores: Sequence[Scores | None]) -> Scores | None:
        """Join the scores of all scorings side by side. Returns None if a scoring has none."""
        if len(scores) == 1:
            return scores[0]
        found = [one for one in scores if one is not None]
        if len(found) < len(scores):
            return None
        missing = np.unique(np.concatenate([one.missing for one in found]))
        values = np.hstack([one.values for one in found])
        values[missing] = np.nan
        errors = {row: reason for one in found for row, reason in one.errors.items()}
        for row in errors.keys() & set(missing.tolist()):
            del errors[row]
        return Scores(values=values, errors=dict(sorted(errors.items())), missing=missing)

    def parted(self, scores: Scores) -> list[Scores]:
        if len(self.scorings) == 1:
            return [scores]
        ends = np.cumsum([scoring.outputs for scoring in self.scorings])
        parts = np.split(scores.values, ends[:-1], axis=1)
        return [replace(scores, values=values) for values in parts]


def scoring_groups(scorings: Sequence[Scoring], scorers: Sequence[Scorer[Any]]) -> list[ScoringGroup]:
    """Group a run's scorings by shared work. `scorers` has one scorer for each scoring.

    Raises ShardError if a scorer does not support the reading of its scoring.
    """
    groups = _gathered(len(scorings), lambda numbers: _joint_scorer(numbers, scorings, scorers))
    return [_group(numbers, scorings, scorers) for numbers in groups]


def sharing_scorers(scorers: Sequence[Scorer[Any]]) -> list[list[int]]:
    """Find scorers that share work on the same texts. Returns their indices by group.

    Leaves out scorers that share nothing. Compares weights, which takes seconds. Scorers cache the result for
    `scoring_groups`.
    """
    groups = _gathered(len(scorers), lambda numbers: _joined([scorers[number] for number in numbers]))
    return [numbers for numbers in groups if len(numbers) > 1]


def _gathered(count: int, joint: Callable[[list[int]], Scorer[Any] | None]) -> list[list[int]]:
    """Group the indices of `count` scorers. Each index is added to the first group that it can join.

    `joint` makes one scorer of several, by their indices. It returns None if they cannot be joined.
    """
    groups: list[list[int]] = []
    for number in range(count):
        for group in groups:
            if joint([*group, number]):
                group.append(number)
                break
        else:
            groups.append([number])
    return groups


def _group(numbers: Sequence[int], scorings: Sequence[Scoring], scorers: Sequence[Scorer[Any]]) -> ScoringGroup:
    scorer = _joint_scorer(numbers, scorings, scorers) or scorers[numbers[0]]
    scoring = scorings[numbers[0]]
    own = scorer.encoding if isinstance(scorer, ModelScorer) else id(scorer)
    return ScoringGroup(
        numbers=tuple(numbers),
        scorings=tuple(scorings[number] for number in numbers),
        scorer=_configured(scoring, scorer),
        encoding=(texts_key(scoring), reading_of(scoring), own),
    )


def _joint_scorer(
    numbers: Sequence[int], scorings: Sequence[Scoring], scorers: Sequence[Scorer[Any]]
) -> Scorer[Any] | None:
    """Make one scorer that computes these scorings together.

    Returns None for a single scoring, for different texts or readings, for zero-shot scoring, and if the scorers
    cannot be joined.
    """
    readings = {(texts_key(scorings[number]), reading_of(scorings[number])) for number in numbers}
    has_labels_of_the_run = any(scorings[number].zero_shot for number in numbers)
    if len(readings) > 1 or has_labels_of_the_run:
        return None
    return _joined([scorers[number] for number in numbers])


def _joined(scorers: Sequence[Scorer[Any]]) -> Scorer[Any] | None:
    first, *others = scorers
    return first.joined_with(others) if others and isinstance(first, ModelScorer) else None


def _configured(scoring: Scoring, scorer: Scorer[Any]) -> Scorer[Any]:
    reading = reading_of(scoring)
    if reading == Reading():
        return scorer
    if not isinstance(scorer, ModelScorer):
        raise ShardError(
            f"The scorer {scoring.model.scorer} reads texts in its own way. "
            "Leave out --labels, --max-tokens, --passages and --text-pair-column."
        )
    try:
        return scorer.reading(reading)
    except ModelError as error:
        raise ShardError(str(error)) from error


def reading_of(scoring: Scoring) -> Reading:
    return Reading(
        max_tokens=scoring.max_tokens,
        passages=scoring.passages,
        pool=scoring.pool,
        hypotheses=_hypotheses(scoring),
        pairs=scoring.text_pair_column is not None,
    )


def _hypotheses(scoring: Scoring) -> Hypotheses | None:
    entailment = entailment_output(scoring.model)
    if scoring.zero_shot is None or entailment is None:
        return None
    return Hypotheses(
        texts=scoring.zero_shot.hypotheses, entailment=entailment, multi_label=scoring.zero_shot.judges_each_alone
    )
