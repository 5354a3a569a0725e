"""Score a user's texts as a worker scores the rows of a shard: with the same code, windows and batches."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from fleet.columns import ERROR
from fleet.scoring import Scoring
from fleet.shard import Shard
from fleet.spec import WINDOW_ROWS
from worker.given_scoring import PAIR, TEXT, arguments_told
from worker.given_texts import pair_windows, windows
from worker.scoring import Scorer, Scores
from worker.shard.checkpoint import Checkpoint
from worker.shard.pipelining import mapped_ahead
from worker.shard.progress import Uninterrupted
from worker.shard.reader import Window
from worker.shard.window_scoring import WindowScoring
from worker.shard.writer import row_errors, score_columns

Texts = Iterable[str | None]
_NO_SHARD = Shard(name="texts", uri="", identity="")


def scored_windows(
    texts: Texts, text_pairs: Texts | None, scorings: Sequence[Scoring], scorers: Sequence[Scorer[Any]]
) -> Iterator[tuple[Scores, ...]]:
    """The logits of each window by each scoring, in order."""
    with arguments_told():
        work = WindowScoring(_NO_SHARD, scorings, scorers, Checkpoint({}, lambda first_row, content: None))
    with mapped_ahead(
        lambda window: next(work.prepared([window])), _as_rows(texts, text_pairs), "tokenizer"
    ) as prepared_windows:
        for prepared in prepared_windows:
            yield work.scores(prepared, Uninterrupted())


def as_table(scored: Iterable[tuple[Scores, ...]], scorings: Sequence[Scoring]) -> pa.Table:
    """The columns that a run writes for each row, and why a row has no score. Without rows it has the same columns."""
    nothing = tuple(Scores(values=np.empty((0, scoring.outputs), np.float32)) for scoring in scorings)
    return pa.concat_tables(_columns(scores, scorings) for scores in (nothing, *scored))


def _columns(scores: tuple[Scores, ...], scorings: Sequence[Scoring]) -> pa.Table:
    errors = row_errors(scores, scorings)
    parts = [score_columns(found, errors, scoring) for found, scoring in zip(scores, scorings, strict=True)]
    reasons = pa.array([errors.get(row) for row in range(len(scores[0].values))], ERROR.type)
    columns = {name: part.column(name) for part in parts for name in part.column_names}
    return pa.table({**columns, ERROR.name: reasons})


def _as_rows(texts: Texts, text_pairs: Texts | None) -> Iterator[Window]:
    first_row = 0
    for columns in _columns_of(texts, text_pairs):
        rows = pa.table(columns)
        yield Window(first_row=first_row, rows=rows)
        first_row += len(rows)


def _columns_of(texts: Texts, text_pairs: Texts | None) -> Iterator[dict[str, pa.LargeStringArray]]:
    if text_pairs is None:
        yield from ({TEXT: column} for column in windows(texts, WINDOW_ROWS))
        return
    for firsts, seconds in pair_windows(texts, text_pairs, WINDOW_ROWS):
        yield {TEXT: firsts, PAIR: seconds}
