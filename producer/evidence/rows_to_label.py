"""Make the sheet of rows to label: draw them, and read their texts from the input."""

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
import pyarrow as pa

from shardsift.fleet.errors import UsageError
from shardsift.fleet.run.spec import Shard
from shardsift.fleet.run.text import whole_texts
from shardsift.producer.evidence.draw import Drawn, Earlier, draw_rows
from shardsift.producer.evidence.sheet import (
    LABEL,
    ROW,
    SHARD,
    SHEET_COLUMNS,
    STRATUM,
    TEXT,
    WEIGHT,
    Labels,
    below,
    good_rows,
)
from shardsift.producer.evidence.strata import Stratum
from shardsift.producer.planning.cut import RankedRun
from shardsift.producer.planning.options import Ranking
from shardsift.producer.scores.distribution import lowest_kept
from shardsift.producer.scores.input_rows import read_rows, source_of
from shardsift.producer.scores.scored_run import ScoredRun, ranked_by
from shardsift.producer.transient_errors import with_retries

_BEST = Fraction(1, 10)  # a run without a threshold is drawn around the lowest score of this share of best rows


@dataclass(frozen=True, kw_only=True)
class Sheet:
    table: pa.Table
    lines: tuple[str, ...]


@with_retries
def rows_to_label(
    run: ScoredRun,
    *,
    rows: int,
    at: float | None = None,
    score_column: str | None = None,
    within: str | None = None,
    columns: Sequence[str] = (),
    seed: int = 0,
    more: Labels | None = None,
    positive: str | None = None,
    source: tuple[str, ...] = (),
) -> Sheet:
    """Draw rows to label, stratified by score around a threshold and by the values of `within`.

    `more` is a sheet that is partly labelled: new rows are added to it, from the strata whose labels narrow the intervals
    most. The threshold is `at`, otherwise the filter's, otherwise the score that separates the best tenth. Raises UsageError
    if the input is unknown or no row can be drawn, ShardError if the input has changed.
    """
    column = run.column(score_column)
    if at is not None and not math.isfinite(at):
        raise UsageError(f"--at {at:g} is not a number that a score can reach.")
    names = dict(run.spec.columns)
    if more:
        _check_goes_on(more, within, columns)
        columns = [name for name in more.table.column_names if name in names and name not in SHEET_COLUMNS]
        within = more.strata[0].within
    _check_columns(columns, names)
    shards = run.shards_of_input(source)
    if not shards:
        raise UsageError(
            "Texts are read from the input. Name it with --input, or name the run instead, if `producer runs` lists it."
        )
    ranked = ranked_by(run, Ranking(score_columns=(column,), within=within), source)
    filtered = lowest_kept(run.spec.where, column)
    threshold = at if at is not None else filtered if filtered is not None else _edge_of_best(ranked)
    drawn = draw_rows(
        ranked,
        threshold=threshold,
        rows=rows,
        seed=seed,
        earlier=_earlier(more, positive, threshold if filtered is None else filtered) if more else None,
    )
    if not drawn.rows:
        raise UsageError("All rows are drawn already.")
    table = _table(run, column, drawn, shards, columns)
    if more:
        table = below(more.table, table)
    strata = [*(more.strata if more else ()), *(row.stratum for row in drawn.rows)]
    table = _weighted(table, strata, drawn.rows_of_stratum)
    lines = []
    if len(run.receipts) < run.shards:
        lines.append(f"Drawn from the {len(run.receipts):,} of {run.shards:,} shards that are scored.")
    if at is None and filtered is None:
        lines.append(
            f"The filter has no threshold: drawn around {threshold:.6g}, above which is the best tenth. Another: --at"
        )
    lines.append(
        f"{len(drawn.rows):,} rows of {len(drawn.rows_of_stratum):,} strata around {column} >= {threshold:.6g}."
    )
    if more:
        ((stratum, count),) = Counter(row.stratum for row in drawn.rows).most_common(1)
        lines.append(f"{count:,} of them have {stratum}, where more labels narrow the intervals most.")
    return Sheet(table=table, lines=(*lines, *ranked.of_unranked("are in no stratum")))


def _check_goes_on(more: Labels, within: str | None, columns: Sequence[str]) -> None:
    if within or columns:
        raise UsageError(
            "--more draws within the same values and shows the same columns. Leave --within and --columns out."
        )
    if not len(more.table):
        raise UsageError(f"{more.name} has no rows. Draw the first ones without --more.")


def _edge_of_best(ranked: RankedRun) -> float:
    """Find the score that separates the best tenth of all rows."""
    of_all = replace(ranked, ranking=replace(ranked.ranking, within=None))
    return of_all.edges([_BEST])[0].score


def _weighted(table: pa.Table, strata: Sequence[Stratum], rows_of_stratum: Mapping[Stratum, int]) -> pa.Table:
    """Set each row's weight: the number of rows of the run that it stands for. `strata` has the stratum of each row."""
    drawn = Counter(strata)
    weights = pa.array([rows_of_stratum[stratum] / drawn[stratum] for stratum in strata], pa.float64())
    return table.set_column(table.column_names.index(WEIGHT), WEIGHT, weights.cast(table[WEIGHT].type))


def _earlier(more: Labels, positive: str | None, threshold: float) -> Earlier:
    rows: dict[str, set[int]] = defaultdict(set)
    for shard, row in zip(more.shards, more.rows, strict=True):
        rows[shard].add(row)
    good = (
        good_rows(more, positive, threshold)[0]
        if more.labels.null_count < len(more.table)
        else np.full(len(more.rows), np.nan)
    )
    names = np.array([stratum.name for stratum in more.strata])
    strata = {}
    for stratum in set(more.strata):
        own = good[names == stratum.name]
        strata[stratum] = (len(own), int(np.count_nonzero(~np.isnan(own))), int(np.nansum(own)))
    return Earlier(rows=rows, strata=strata)


def _check_columns(columns: Sequence[str], names: Mapping[str, str]) -> None:
    """Raise UsageError if the input lacks a column, or if the sheet already has a column of that name, ignoring case."""
    taken = [*SHEET_COLUMNS]
    for name in columns:
        if name not in names:
            raise UsageError(f'--columns: the input has no column "{name}"; it has: {", ".join(names)}.')
        if name.lower() in taken:
            raise UsageError(f'--columns: the sheet has a column "{name.lower()}" already. Leave "{name}" out.')
        taken.append(name.lower())


def _table(run: ScoredRun, column: str, drawn: Drawn, shards: dict[str, Shard], columns: Sequence[str]) -> pa.Table:
    scoring = run.spec.scoring_of[column]
    texts = [name for name in (*scoring.text_columns, scoring.text_pair_column) if name is not None]
    rows_of: dict[str, list[int]] = defaultdict(list)
    for row in drawn.rows:
        rows_of[row.shard].append(row.row)
    found: list[pa.Table] = []
    places: dict[tuple[str, int], int] = {}
    for name, rows in rows_of.items():
        read = read_rows(
            source_of(run.receipts, name, shards).uri, rows, run.spec, list(dict.fromkeys([*texts, *columns])), bad={}
        )
        text = pa.array(whole_texts(read, scoring), pa.large_string())
        places |= {(name, row): len(places) + index for index, row in enumerate(sorted(rows))}
        found.append(pa.table([text, *(read[one] for one in columns)], names=[TEXT, *columns]))
    read = pa.concat_tables(found).take([places[row.shard, row.row] for row in drawn.rows])
    own = {
        SHARD: [row.shard for row in drawn.rows],
        ROW: [row.row for row in drawn.rows],
        STRATUM: [row.stratum.name for row in drawn.rows],
        WEIGHT: [0.0] * len(drawn.rows),
    }
    columns_read = {name: read[name] for name in read.column_names}
    return pa.table({**own, **columns_read, LABEL: pa.nulls(len(drawn.rows), pa.string())})
