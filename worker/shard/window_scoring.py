"""Score a window with every scoring of the run, or take its scores from the checkpoint."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from fleet.errors import ShardError
from fleet.scoring import Scoring
from fleet.shard import Shard
from fleet.zero_shot import entailment_output
from worker.scoring import Hypotheses, ModelError, Place, Reading, ReadingScorer, Scorer, Scores
from worker.shard.checkpoint import Checkpoint
from worker.shard.progress import Progress
from worker.shard.reader import Window
from worker.shard.text_digest import text_digest
from worker.shard.texts import texts_of
from worker.shard.unscored import unscorable_rows, with_reasons, without


@dataclass(frozen=True, kw_only=True)
class PreparedWindow:
    """A window that is ready for the device, with its texts for each scoring."""

    window: Window
    texts: tuple["_PreparedTexts", ...]

    @property
    def digests(self) -> list[str]:
        return [texts.digest for texts in self.texts]


@dataclass(frozen=True, kw_only=True)
class _PreparedTexts:
    digest: str
    earlier: Scores | None  # of an earlier attempt, perhaps of some rows only
    unscorable: dict[int, str]  # row → reason
    encoded: Any  # None if an earlier attempt scored all rows


class WindowScoring:
    """Scores the windows of one shard. `scorers` has one scorer for each scoring of the run, in the same order."""

    def __init__(
        self, shard: Shard, scorings: Sequence[Scoring], scorers: Sequence[Scorer[Any]], checkpoint: Checkpoint
    ) -> None:
        self._shard = shard
        self._scorings = scorings
        self._scorers = list(map(_configured, scorings, scorers))
        self._checkpoint = checkpoint

    def prepared(self, windows: Iterable[Window]) -> Iterator[PreparedWindow]:
        """Read the checkpoint, and encode the windows that are not in it."""
        for window in windows:
            columns = [texts_of(window.rows, scoring) for scoring in self._scorings]
            digests = [text_digest(column) for column in columns]
            found = self._checkpoint.scores_of(window.first_row, len(window.rows), digests)
            place = Place(shard=self._shard.name, source_identity=self._shard.identity, first_row=window.first_row)
            texts = tuple(
                map(self._prepared, self._scorings, self._scorers, columns, digests, found, [place] * len(found))
            )
            yield PreparedWindow(window=window, texts=texts)

    def _prepared(
        self,
        scoring: Scoring,
        scorer: Scorer[Any],
        column: pa.LargeStringArray,
        digest: str,
        earlier: Scores | None,
        place: Place,
    ) -> _PreparedTexts:
        unscorable = unscorable_rows(column, score_blank=scoring.score_blank)
        is_known = earlier is not None and earlier.has_all_rows
        encoded = None if is_known else scorer.encode(without(column, unscorable), place)
        return _PreparedTexts(digest=digest, earlier=earlier, unscorable=unscorable, encoded=encoded)

    def scores(self, prepared: PreparedWindow, progress: Progress) -> tuple[Scores, ...]:
        """The scores by each scoring, which are also stored. If the work must stop here, they are partial."""
        rows = len(prepared.window.rows)
        if all(texts.encoded is None for texts in prepared.texts):
            progress.on_batch(rows)
            return tuple(texts.earlier for texts in prepared.texts if texts.earlier)
        all_scores: list[Scores] = []
        for scoring, scorer, texts in zip(self._scorings, self._scorers, prepared.texts, strict=True):
            is_to_end = any(not scores.has_all_rows for scores in all_scores)
            if texts.encoded is None or is_to_end:
                all_scores.append(texts.earlier or _nothing(rows, scoring))
                continue
            scores = scorer.score_encoded(texts.encoded, progress.on_batch, texts.earlier)
            all_scores.append(with_reasons(scores, texts.unscorable, scoring, rows=rows))
        self._checkpoint.store(prepared.window.first_row, all_scores, prepared.digests)
        return tuple(all_scores)


def _configured(scoring: Scoring, scorer: Scorer[Any]) -> Scorer[Any]:
    """The scorer that reads texts as the scoring says. Raises ShardError if it cannot."""
    reading = _reading(scoring)
    if reading == Reading() or scoring.scores_from:
        return scorer
    if not isinstance(scorer, ReadingScorer):
        raise ShardError(
            f"The scorer {scoring.model.scorer} reads texts in its own way. Leave out --task, --max-tokens and --windows."
        )
    try:
        return scorer.reading(reading)
    except ModelError as error:
        raise ShardError(str(error)) from error


def _reading(scoring: Scoring) -> Reading:
    return Reading(
        max_tokens=scoring.max_tokens, passages=scoring.passages, pool=scoring.pool, hypotheses=_hypotheses(scoring)
    )


def _hypotheses(scoring: Scoring) -> Hypotheses | None:
    entailment = entailment_output(scoring.model)
    if scoring.zero_shot is None or entailment is None:
        return None
    return Hypotheses(
        texts=scoring.zero_shot.hypotheses, entailment=entailment, multi_label=scoring.zero_shot.judges_each_alone
    )


def _nothing(rows: int, scoring: Scoring) -> Scores:
    values = np.full((rows, scoring.outputs), np.nan, dtype=np.float32)
    return Scores(values=values, missing=np.arange(rows))
