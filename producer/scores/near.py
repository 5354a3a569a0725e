"""Random rows whose score is near a threshold, with their texts, so that a person can judge where to cut."""

import heapq
import random
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from fleet.errors import UsageError
from fleet.inputs.input_file import IgnoredBadRows, InputFile
from fleet.inputs.opening import open_input
from fleet.run.columns import ROW
from fleet.run.receipt import Receipt
from fleet.run.scoring import Scoring
from fleet.run.spec import RunSpec, Shard
from fleet.storage.errors import translated
from fleet.storage.opening import Published, open_parquet
from producer.opening import patient
from producer.scores.read import ScoredRun
from producer.verify.source import source_shards

_BATCH_ROWS = 1 << 16
_SHOWN_CHARACTERS = 300


@dataclass(frozen=True, kw_only=True)
class NearRow:
    """A row of the input. `text` None: it was not kept, and the input was not named."""

    shard: str
    row: int
    score: float
    url: str | None = None
    text: str | None = None


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
    without them only kept rows have a text. Raises ShardError for a damaged file, TransientError for the network.
    """
    chances = random.Random(seed)
    found = heapq.nsmallest(
        count,
        ((chances.random(), row) for row in _candidates(published, scoring, near, within)),
        key=lambda pair: pair[0],
    )
    by_shard: defaultdict[str, list[NearRow]] = defaultdict(list)
    for _, row in found:
        by_shard[row.shard].append(row)
    receipts = {receipt.shard: receipt for receipt in published.receipts}
    rows = [
        row
        for shard, wanted in by_shard.items()
        for row in _with_texts(published, scoring, receipts[shard], wanted, source)
    ]
    return sorted(rows, key=lambda row: (row.score, row.shard, row.row))


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


def near_lines(rows: Sequence[NearRow], *, near: float, within: float) -> Iterator[str]:
    """Rows for people: score, place, URL, and the beginning of the text."""
    if not rows:
        yield f"No row has a score within {within:g} of {near:g}. Widen it with --within."
    for row in rows:
        yield f"{row.score:.3f}  {row.shard} row {row.row:,}{f'  {row.url}' if row.url else ''}"
        text = (
            "(not kept; name the input with --source to see its text)"
            if row.text is None
            else " ".join(row.text.split())
        )
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
    published: Published, scoring: Scoring, receipt: Receipt, wanted: Sequence[NearRow], source: Mapping[str, Shard]
) -> Iterator[NearRow]:
    """The same rows with URL and text, if they can be found."""
    spec = published.spec
    columns, rows = shown_columns(spec, scoring), {row.row for row in wanted}
    if receipt.shard in source:
        with open_input(source[receipt.shard].uri, spec.columns, only=spec.only_columns) as file:
            values = values_of_input(file, rows, columns)
    else:
        values = _of_kept(published, receipt, spec, rows, columns)
    for row in wanted:
        found = values.get(row.row)
        yield row if found is None else replace(row, url=url_of(found), text=text_of(found, scoring))


def _of_kept(
    published: Published, receipt: Receipt, spec: RunSpec, rows: set[int], columns: list[str]
) -> dict[int, dict[str, object]]:
    if spec.row_columns is None:
        return {}
    _, row_column = spec.row_columns
    found: dict[int, dict[str, object]] = {}
    with open_parquet(f"{published.uri}/{receipt.data.path}") as file:
        for batch in file.iter_batches(columns=[row_column, *columns], use_threads=False):
            for place, row in enumerate(batch[row_column].to_pylist()):
                if row in rows:
                    found[row] = values_at(batch, place)
    return found


# The text and the URL of single rows, for a person to read.

_URL = "url"


def shown_columns(spec: RunSpec, scoring: Scoring) -> list[str]:
    """The columns of the input that a person needs to judge a score."""
    there_are = dict(spec.columns)
    return list(dict.fromkeys(name for name in (*scoring.text_columns, _URL) if name in there_are))


def values_of_input(file: InputFile, rows: Collection[int], columns: list[str]) -> dict[int, dict[str, object]]:
    """Row → its values. Reads the file from the beginning up to the last of these rows. Raises ShardError or TransientError."""
    found: dict[int, dict[str, object]] = {}
    first = 0
    with translated("Reading the input"):
        for batch in file.batches(columns, bad=IgnoredBadRows(), use_threads=False):
            for row in rows:
                if first <= row < first + len(batch):
                    found[row] = values_at(batch, row - first)
            first += len(batch)
            if len(found) == len(rows):
                break
    return found


def values_at(batch: pa.RecordBatch, place: int) -> dict[str, object]:
    return dict(batch.slice(place, 1).to_pylist()[0])


def text_of(values: Mapping[str, object], scoring: Scoring) -> str:
    return "\n\n".join(str(values[name]) for name in scoring.text_columns if values.get(name))


def url_of(values: Mapping[str, object]) -> str | None:
    url = values.get(_URL)
    return None if url is None else str(url)
