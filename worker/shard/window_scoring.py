"""Score a window with every scoring of the run, or take its scores from the checkpoint or an earlier run."""

import threading
import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from shardsift.fleet.errors import ShardError
from shardsift.fleet.run.scoring import Scoring
from shardsift.fleet.run.spec import Shard
from shardsift.fleet.run.text import is_blank, scored_digest, texts_key, texts_of
from shardsift.worker.scoring import GoOn, ModelScorer, Scorer, Scores, null_texts, token_count
from shardsift.worker.shard.checkpoint import Checkpoint
from shardsift.worker.shard.reader import Window
from shardsift.worker.shard.scoring_groups import ScoringGroup, scoring_groups
from shardsift.worker.shard.stored_scores import StoredScores
from shardsift.worker.shard.vitals import Progress

# Two shards may encode windows at the same time, but a tokenizer may not be thread-safe.
_ENCODING = threading.Lock()


@dataclass(frozen=True, kw_only=True)
class PreparedWindow:
    window: Window
    digests: list[str]  # of the texts, for each scoring
    earlier: Sequence[Scores | None]  # for each scoring, from an earlier attempt, perhaps only of some rows
    unscorable: list[dict[int, str]]  # for each scoring: row → reason
    encoded: list[Any]  # for each group; None if an earlier attempt scored all rows
    encode_seconds: float


class WindowScoring:
    """Scores the windows of one shard. `scorers` has one scorer for each scoring of the run, in the same order.

    `is_of_device` says whether models on the device compute all scores. If so, the next shard may begin before this
    shard's last window is scored.
    """

    def __init__(
        self, shard: Shard, scorings: Sequence[Scoring], scorers: Sequence[Scorer[Any]], checkpoint: Checkpoint
    ) -> None:
        self._scorings = scorings
        self._checkpoint = checkpoint
        self._earlier: _Earlier = checkpoint.scores_of
        self._groups: list[ScoringGroup] = []
        self.is_of_device = False
        if isinstance(scorers[0], StoredScores):  # stored by an earlier run, which scored all rows
            self._earlier = partial(scorers[0].scores_of, shard)
        else:
            self._groups = scoring_groups(scorings, scorers)
            self.is_of_device = all(isinstance(group.scorer, ModelScorer) for group in self._groups)

    def prepared(self, windows: Iterable[Window]) -> Iterator[PreparedWindow]:
        """Prepare each window: read the scores that are stored for it, and encode its texts if rows lack scores."""
        for window in windows:
            begun = time.monotonic()
            texts = {texts_key(scoring): _Texts.of(window.rows, scoring) for scoring in self._scorings}
            of_each = [texts[texts_key(scoring)] for scoring in self._scorings]
            digests = [one.digest for one in of_each]
            earlier = self._earlier(window.first_row, len(window.rows), digests)
            with _ENCODING:
                encoded = self._encoded(texts, earlier)
            yield PreparedWindow(
                window=window,
                digests=digests,
                earlier=earlier,
                unscorable=[one.unscorable for one in of_each],
                encoded=encoded,
                encode_seconds=time.monotonic() - begun,
            )

    def _encoded(self, texts: dict[Hashable, "_Texts"], earlier: Sequence[Scores | None]) -> list[Any]:
        """Encode the texts for each group. Groups with equal `encoding` share the result.

        An entry is None if all rows of its group were scored earlier.
        """
        found: dict[Hashable, Any] = {}
        encoded: list[Any] = []
        for group in self._groups:
            known = [earlier[number] for number in group.numbers]
            if all(scores is not None and scores.has_all_rows for scores in known):
                encoded.append(None)
                continue
            if group.encoding not in found:
                scorable = texts[texts_key(group.scorings[0])].scorable
                found[group.encoding] = group.scorer.encode(scorable)
            encoded.append(found[group.encoding])
        return encoded

    def scores(self, prepared: PreparedWindow, progress: Progress) -> tuple[Scores, ...]:
        return self.fetch(prepared, self.launch(prepared, progress))

    def launch(self, prepared: PreparedWindow, progress: Progress) -> "Launched":
        """Give the batches of a window to the device. Stops after a batch if `progress` says that the work must stop."""
        rows = len(prepared.window.rows)
        due = [
            (group, encoded)
            for group, encoded in zip(self._groups, prepared.encoded, strict=True)
            if encoded is not None
        ]
        if self._groups:
            progress.vitals.rows_resumed += min(0 if one is None else int(one.known.sum()) for one in prepared.earlier)
        if not due:
            progress.on_batch(rows)
        launched: Launched = []
        for number, (group, encoded) in enumerate(due):
            progress.vitals.tokens += token_count(encoded)
            go_on = _Heeded(_part_of(progress.on_batch, number, len(due), rows))
            earlier = group.joined([prepared.earlier[one] for one in group.numbers])
            launched.append((group, _launched(group.scorer, encoded, go_on, earlier)))
            if go_on.has_stopped:
                break
        return launched

    def fetch(self, prepared: PreparedWindow, launched: "Launched") -> tuple[Scores, ...]:
        """Wait for the scores of each scoring, and store them in the checkpoint.

        Some rows are missing if the work stopped in this window.
        """
        rows = len(prepared.window.rows)
        found = [
            scores or _nothing(rows, scoring) for scores, scoring in zip(prepared.earlier, self._scorings, strict=True)
        ]
        for group, scores in launched:
            for number, scoring, part in zip(group.numbers, group.scorings, group.parted(scores()), strict=True):
                found[number] = with_reasons(part, prepared.unscorable[number], scoring, rows=rows)
        if launched:
            self._checkpoint.store(prepared.window.first_row, found, prepared.digests)
        return tuple(found)


_Earlier = Callable[[int, int, Sequence[str]], Sequence[Scores | None]]
Launched = list[tuple[ScoringGroup, Callable[[], Scores]]]


def _launched(scorer: Scorer[Any], encoded: Any, go_on: GoOn, earlier: Scores | None) -> Callable[[], Scores]:
    if isinstance(scorer, ModelScorer):
        return scorer.launch(encoded, go_on, earlier)
    scores = scorer.score_encoded(encoded, go_on, earlier)
    return lambda: scores


@dataclass
class _Heeded:
    go_on: GoOn
    has_stopped: bool = False

    def __call__(self, rows: int) -> bool:
        self.has_stopped |= not self.go_on(rows)
        return not self.has_stopped


@dataclass(frozen=True, kw_only=True)
class _Texts:
    digest: str
    scorable: pa.LargeStringArray  # null in rows that cannot be scored
    unscorable: dict[int, str]  # row → reason

    @staticmethod
    def of(rows: pa.Table, scoring: Scoring) -> "_Texts":
        column = texts_of(rows, scoring)
        unscorable = unscorable_rows(column)
        digest = scored_digest(rows, scoring)
        return _Texts(digest=digest, scorable=without_rows(column, unscorable), unscorable=unscorable)


def _part_of(on_batch: Callable[[int], bool], number: int, parts: int, rows: int) -> Callable[[int], bool]:
    return lambda done: on_batch((number * rows + done) // parts)


def _nothing(rows: int, scoring: Scoring) -> Scores:
    values = np.full((rows, scoring.outputs), np.nan, dtype=np.float32)
    return Scores(values=values, missing=np.arange(rows))


def unscorable_rows(texts: pa.LargeStringArray) -> dict[int, str]:
    """Find the rows without a text, or with only white space. Returns the reason by row."""
    is_blank_text = pc.fill_null(is_blank(texts), False).to_numpy(zero_copy_only=False)
    reasons = null_texts(texts) | dict.fromkeys(np.flatnonzero(is_blank_text).tolist(), "blank text")
    return dict(sorted(reasons.items()))


def without_rows(texts: pa.LargeStringArray, rows: dict[int, str]) -> pa.LargeStringArray:
    mask = np.zeros(len(texts), dtype=np.bool_)
    mask[list(rows)] = True
    return pc.if_else(pa.array(mask), pa.scalar(None, texts.type), texts) if rows else texts


def with_reasons(scores: Scores, unscorable: dict[int, str], scoring: Scoring, *, rows: int) -> Scores:
    """Add the reasons of the rows in `unscorable` to the scores of a window of `rows` rows.

    Raises ShardError for scores of a wrong shape or type, because a scorer of another package may return anything.
    """
    values = np.asarray(scores.values)
    if values.shape != (rows, scoring.outputs) or not np.issubdtype(values.dtype, np.number):
        raise ShardError(
            f"The scorer {scoring.model.scorer} returned an array of shape {values.shape} and type {values.dtype} for {rows:,} "
            f"rows. It must return numbers of shape ({rows}, {scoring.outputs}): one row per text, one column per label."
        )
    return replace(scores, values=values.astype(np.float32)).with_errors(unscorable)
