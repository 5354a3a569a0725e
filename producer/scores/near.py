"""Random rows whose score is near a threshold, with their texts, so that a person can judge where to cut."""

import heapq
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from fleet.errors import UsageError
from fleet.run.columns import ROW
from fleet.run.scoring import Scoring
from fleet.run.spec import Shard
from fleet.storage.opening import Published, open_parquet
from producer.opening import patient
from producer.scores.read import ScoredRun
from producer.scores.shown_rows import shown_rows
from producer.verify.source import source_shards

_BATCH_ROWS = 1 << 16
_SHOWN_CHARACTERS = 300


@dataclass(frozen=True, kw_only=True)
class NearRow:
    """A row of the input. `text` is None if the input was not named."""

    shard: str
    row: int
    score: float
    url: str | None = None
    text: str | None = None


@patient
def rows_of_run_near(
    run: ScoredRun, column: str | None, *, near: float, within: float, count: int, seed: int, source: tuple[str, ...]
) -> list[NearRow]:
    """`rows_near` of a run, with its input as the ledger or `source` names it.

    Raises UsageError for a run that is not published, a source that is not its input, and several score columns of which
    none is named.
    """
    if run.published is None:
        raise UsageError(f"{run.name} is not published yet, so its rows cannot be shown: producer status {run.name}")
    if column is None and len(run.spec.scorings) > 1:
        columns = ", ".join(scoring.score_column for scoring in run.spec.scorings)
        raise UsageError(f"{run.name} has several score columns: {columns}. Name one with --column.")
    uris = source or run.input_uris
    return rows_near(
        run.published,
        run.scoring(column),
        near=near,
        within=within,
        count=count,
        seed=seed,
        source=source_shards(uris, run.published) if uris else {},
    )


def rows_near(
    published: Published,
    scoring: Scoring,
    *,
    near: float,
    within: float,
    count: int,
    seed: int,
    source: Mapping[str, Shard],
) -> list[NearRow]:
    """Up to `count` rows with a score between `near - within` and `near + within`, the lowest first.

    Each such row has the same chance, and the same seed finds the same rows. `source` are the shards of the input, by name;
    without them the rows have no text. Raises ShardError for a damaged file, TransientError for the network.
    """
    chances = random.Random(seed)
    found = heapq.nsmallest(
        count,
        ((chances.random(), row) for row in _candidates(published, scoring, near, within)),
        key=lambda pair: pair[0],
    )
    rows = sorted((row for _, row in found), key=lambda row: (row.score, row.shard, row.row))
    return _with_texts(published, scoring, rows, source) if source else rows


def near_lines(rows: Sequence[NearRow], *, near: float, within: float) -> Iterator[str]:
    """Rows for people: score, place, URL, and the beginning of the text."""
    if not rows:
        yield f"No row has a score within {within:g} of {near:g}. Widen it with --within."
    for row in rows:
        yield f"{row.score:.3f}  {row.shard} row {row.row:,}{f'  {row.url}' if row.url else ''}"
        text = "(name the input with --source to see the text)" if row.text is None else " ".join(row.text.split())
        yield f"       {text[:_SHOWN_CHARACTERS]}{'…' if len(text) > _SHOWN_CHARACTERS else ''}"


def _candidates(published: Published, scoring: Scoring, near: float, within: float) -> Iterator[NearRow]:
    for receipt in published.receipts:
        with open_parquet(f"{published.uri}/{receipt.scores.path}") as file:
            for batch in file.iter_batches(_BATCH_ROWS, columns=[ROW.name, scoring.score_column], use_threads=False):
                scores = batch[scoring.score_column].to_numpy(zero_copy_only=False)
                for place in np.flatnonzero(np.abs(scores - near) <= within):
                    yield NearRow(
                        shard=receipt.shard, row=batch[ROW.name][int(place)].as_py(), score=float(scores[place])
                    )


def _with_texts(
    published: Published, scoring: Scoring, rows: Sequence[NearRow], source: Mapping[str, Shard]
) -> list[NearRow]:
    texts = {}
    for shard in {row.shard for row in rows}:
        wanted = [row.row for row in rows if row.shard == shard]
        texts[shard] = shown_rows(source[shard].uri, wanted, published.spec, scoring)
    shown = [(row, texts[row.shard][row.row]) for row in rows]
    return [replace(row, url=found.url, text=found.text) for row, found in shown]
