"""Find the exact score that a given share of a run's rows reaches. Reads the stored scores in bounded memory."""

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import partial
from itertools import cycle, groupby
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from shardsift.fleet.errors import UsageError
from shardsift.fleet.inputs.drop_lists import loaded_lists
from shardsift.fleet.run.output_columns import output_fields, row_fields
from shardsift.fleet.run.receipt import Receipt
from shardsift.fleet.run.spec import BestRows, Buckets, RunSpec, Shard
from shardsift.fleet.storage.open_output import stored_scores
from shardsift.producer.planning.options import Ranking, share_of
from shardsift.producer.scores.input_rows import read_rows, source_of

_MOST_VALUES = 256  # different values of the --within column
_MOST_EDGES = 2048  # for all values together; each may take 32 KiB
_MOST_KEPT = 1 << 22  # rows kept in memory, 16 bytes each
_MOST_WEIGHT = 1 << 46  # of a shard: exact in doubles, and the sum of 100,000 shards fits in 64 bits
_PASSES = ((21, 11), (10, 11), (0, 10))  # the bits of the score that each pass decides: lowest bit, number of bits
_SIGN = 1 << 31
# The names that Arrow gives its types.
_WHOLE_NUMBERS = re.compile(r"(dictionary<values=)?u?int\d+\b")
_TEXTS = re.compile(r"(dictionary<values=)?(large_)?string(_view)?\b")

Integers = npt.NDArray[np.int64]
Rows = tuple[Integers, Integers]  # the key of each row, as `keys_of` makes it, and its weight
Values = list[Any]  # of `--within`; a value is identified by its index


@dataclass(frozen=True, kw_only=True)
class Edge:
    """The lowest score of the best rows. With `--within`, these are the best of the rows with one value."""

    value: str | int | None  # None without `--within`
    score: float
    rows: int  # with this score or more
    weight: int  # of these rows: the sum of their `--by`, or their number if there is no `--by`
    total: int  # weight of all rows with the value


@dataclass(frozen=True, kw_only=True)
class RankedRun:
    spec: RunSpec
    output_uri: str
    receipts: Sequence[Receipt]
    shards: Mapping[str, Shard]  # of the input, by name
    ranking: Ranking
    _unranked: dict[str, int] = field(default_factory=dict)  # by shard: scored rows whose `--within` is null

    def of_unranked(self, fate: str) -> tuple[str, ...]:
        """Return a line with the number of scored rows whose `--within` column is null. Empty if there are none.

        `fate` says what happens to these rows. Call `edges` or `read` first, because they count the rows.
        """
        rows = sum(self._unranked.values())
        return (f"{rows:,} scored rows, whose {self.ranking.within} is null, {fate}.",) if rows else ()

    @property
    def columns(self) -> tuple[str, ...]:
        return _score_columns(self.spec, self.ranking)

    def edges(self, shares: Sequence[Fraction]) -> list[Edge]:
        """Find the edge of the best rows for each value of `--within` and each share.

        Raises UsageError if there are no rows to rank.
        """
        values: Values = [] if self.ranking.within else [None]
        rows = sum(receipt.rows_in for receipt in self.receipts)
        return exact_edges(lambda: (ranked for _, _, ranked in self.read(values)), values, shares, rows=rows)

    def read(self, values: Values) -> Iterator[tuple[Receipt, Integers, Rows]]:
        """Yield each shard's receipt, the indices of its ranked rows in the shard, and the keys and weights of these rows.

        A row is ranked if it has a score and a value of `--within`, and is in no drop list. A key, as `keys_of` makes it,
        sorts rows by value and score. Appends new values to `values`; without `--within`, pass `[None]`.
        """
        columns, by, within = self.columns, self.ranking.by, self.ranking.within
        of_input, lists = columns_of_input(self.spec, self.ranking), loaded_lists(self.spec.drop_lists)
        stored = [*columns, within] if within and within not in of_input else [*columns]
        of_input = [*dict.fromkeys([*of_input, *(one.column for one in self.spec.drop_lists)])]
        for receipt, table in stored_scores(self.output_uri, self.receipts, stored):
            if of_input:
                shard = source_of([receipt], receipt.shard, self.shards, what=f"The column {of_input[0]} is")
                rows = range(receipt.first_row, receipt.first_row + receipt.rows_in)
                read = read_rows(shard.uri, rows, self.spec, of_input, bad={})
                for name in of_input:
                    table = table.append_column(name, _decoded(read[name]))
            scores = np.fmax.reduce([table[name].to_numpy() for name in columns])
            has_score = ~np.isnan(scores)
            for one in lists:
                has_score[one.rows_in(table)] = False
            has_value = table[within].is_valid().to_numpy() if within else True
            self._unranked[receipt.shard] = int(np.count_nonzero(has_score & ~np.asarray(has_value)))
            ranked = np.flatnonzero(has_score & has_value)
            numbers = (
                _numbers(table[within].take(ranked), within, values) if within else np.zeros(len(ranked), np.int64)
            )
            weights = _weights(table[by], by, receipt)[ranked] if by else np.ones(len(ranked), np.int64)
            yield receipt, ranked, (keys_of(scores[ranked], numbers), weights)


def check_ranking(spec: RunSpec, ranking: Ranking) -> None:
    """Raise UsageError if the ranking does not fit the run. Reads no scores."""
    _score_columns(spec, ranking)
    columns_of_input(spec, ranking)
    _check_within(spec, ranking)


def _score_columns(spec: RunSpec, ranking: Ranking) -> tuple[str, ...]:
    columns = tuple(dict.fromkeys(ranking.score_columns))
    if not columns and len(spec.scorings) == 1:
        columns = (spec.scorings[0].score_column,)
    names = [field.name for field in output_fields(spec) if field.type == pa.float32()]
    if not columns or (wrong := [name for name in columns if name not in names]):
        said = f"There is no score column {wrong[0]}. Name one" if columns else "Name the score column"
        raise UsageError(f"{said} with --score-column. The run has: {', '.join(names)}.")
    return columns


def columns_of_input(spec: RunSpec, ranking: Ranking) -> list[str]:
    """List the columns of the ranking that must be read from the input.

    Raises UsageError if a named column does not exist or has an unsuitable type.
    """
    by, within, names = ranking.by, ranking.within, dict(spec.columns)
    added = [field.name for field in output_fields(spec) if not pa.types.is_floating(field.type)]
    if by and by not in names:
        raise UsageError(f"--by {by}: the input has no such column; it has: {', '.join(names)}.")
    if within and within not in [*names, *added]:
        raise UsageError(
            f"--within {within}: name a column of the input, which has {', '.join(names)}, or one of labels or whole numbers "
            f"that scoring has added: {', '.join(added) or 'none'}."
        )
    if by and not _WHOLE_NUMBERS.match(names[by]):
        raise UsageError(f"--by {by}: a weight is a whole number, and this column has {names[by]}.")
    if within in names and not (_TEXTS.match(names[within]) or _WHOLE_NUMBERS.match(names[within])):
        raise UsageError(f"--within {within}: values are texts or whole numbers, and this column has {names[within]}.")
    return [name for name in dict.fromkeys([by, within]) if name in names]


def _check_within(spec: RunSpec, ranking: Ranking) -> None:
    """Raise UsageError if another column's name differs from `--within` only in case, because SQL ignores case."""
    within = ranking.within
    names = [*dict(spec.columns), *(field.name for field in row_fields(spec)), *spec.output_columns]
    if within and (others := [name for name in names if name.lower() == within.lower() and name != within]):
        raise UsageError(
            f'--within {within}: the output would also have a column "{others[0]}", which is the same to SQL. Rename one '
            "in the input; those of a model with --model NAME=MODEL."
        )


def _decoded(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column


def _weights(column: pa.ChunkedArray, name: str, receipt: Receipt) -> Integers:
    if (pc.min(column).as_py() or 0) < 0:
        raise UsageError(
            f"--by {name}: a weight is a whole number, 0 or more, and some of {receipt.shard} are below 0."
        )
    if (pc.sum(column.cast(pa.float64(), safe=False)).as_py() or 0) > _MOST_WEIGHT:
        raise UsageError(
            f"--by {name}: the weights of {receipt.shard} are too high to add up. Are these numbers counts?"
        )
    return np.asarray(column.fill_null(0).cast(pa.int64()))


def _numbers(column: pa.ChunkedArray, name: str, values: Values) -> Integers:
    """Return the index in `values` of each row's value. Appends new values. Raises UsageError if there are too many."""
    values += [value for value in pc.unique(column).to_pylist() if value not in values]
    if len(values) > _MOST_VALUES:
        raise UsageError(f"--within {name} has more than {_MOST_VALUES} values. Name a column of fewer.")
    return np.asarray(pc.index_in(column, pa.array(values, column.type)), np.int64)


def bucket_shares(buckets: int) -> list[Fraction]:
    """Return the share of rows in bucket 1 or higher, in bucket 2 or higher, and so on."""
    return [Fraction(buckets - bucket, buckets) for bucket in range(1, buckets)]


def buckets_of(run: RankedRun, buckets: int) -> Buckets:
    by_value = groupby(run.edges(bucket_shares(buckets)), key=lambda edge: edge.value)
    edges = tuple((value, tuple(edge.score for edge in found)) for value, found in by_value)
    return Buckets(columns=run.columns, within=run.ranking.within, by=run.ranking.by, edges=edges)


def best_rows(run: RankedRun, keep_top: str) -> tuple[BestRows, str, tuple[str, ...]]:
    """Find the best rows. Returns their description for the card, SQL that selects them, and lines for the user."""
    check_ranking(run.spec, run.ranking)
    edges, within, by = run.edges([share_of(keep_top)]), run.ranking.within, run.ranking.by
    best = BestRows(share=keep_top, columns=run.columns, within=within, by=by)
    kept = sum(edge.weight for edge in edges) / sum(edge.total for edge in edges)
    notes = (
        f"Keeps {kept:.2%} of {by or 'the scored rows'}: {sum(edge.rows for edge in edges):,} rows.",
        *run.of_unranked("are left out, and are not in these figures"),
    )
    columns = ", ".join(f'"{column}"' for column in run.columns)
    score = f"greatest({columns})" if len(run.columns) > 1 else columns
    if within is None:
        return best, f"{score} >= {edges[0].score!r}", notes
    cases = (f"WHEN {_quoted(edge.value)} THEN {edge.score!r}::DOUBLE" for edge in edges)
    name = within.replace('"', '""')
    return best, f'{score} >= CASE "{name}" {" ".join(cases)} END', notes


def _quoted(value: str | int | None) -> str:
    return "'" + str(value).replace("'", "''") + "'"


# Find edges without sorting: each pass counts the rows by the next bits of their keys.


def keys_of(scores: npt.NDArray[np.float32], numbers: Integers) -> Integers:
    """Make a sortable 64-bit key for each row.

    The high 32 bits are from `numbers`: the index of the row's value of `--within`. The low 32 bits are its score.
    """
    return (numbers << 32) + _SIGN + _in_order(scores.view(np.int32).astype(np.int64))


def scores_of_keys(keys: Integers) -> npt.NDArray[np.float32]:
    return _in_order((keys & 0xFFFFFFFF) - _SIGN).astype(np.int32).view(np.float32)


def _in_order(bits: Integers) -> Integers:
    """Turn the bits of floats into integers that sort like the floats, or back. -0.0 becomes 0.0, as in SQL."""
    return np.where(bits < 0, -_SIGN - bits, bits)


def exact_edges(
    read: Callable[[], Iterable[Rows]], values: Values, shares: Sequence[Fraction], *, rows: int
) -> list[Edge]:
    """Find the edge of the best rows for each value of `--within` and each share.

    `read` starts a pass over all rows and fills `values`. `rows` is an upper limit of the number of rows. A pass keeps rows
    in memory for the next ones if at most _MOST_KEPT can be at an edge. So a run of up to _MOST_KEPT rows is read once, and
    a larger one two or three times.
    """
    keys = np.arange(_MOST_VALUES)  # the known bits of each edge's key; at first there is one edge for each value
    totals: list[int] = []
    above = np.zeros((2, 1), np.int64)  # for each edge, the rows with a higher key, and their weight
    for lowest, bits in _PASSES:
        known, places = np.unique(keys, return_inverse=True)
        kept: list[Rows] | None = [] if rows <= _MOST_KEPT else None
        counted = _counted(read(), known, lowest, bits, kept)
        if not totals:
            places = keys = _numbers_of_edges(values, counted[1, :, 0], shares)
            totals = counted[1, keys, 0].tolist()
            needed = np.array([math.ceil(total * share) for total, share in zip(totals, cycle(shares), strict=False)])
        found = counted[:, places] + above[:, :, None]
        digits = np.count_nonzero(found[1] >= needed[:, None], axis=1) - 1
        keys = (keys << bits) + digits
        best, above = (found[:, np.arange(len(keys)), digit] for digit in (digits, digits + 1))
        rows = int(sum(best[0] - above[0]))
        if kept is not None:
            read = partial(list, kept)
    scores = scores_of_keys(keys).tolist()
    return [
        Edge(value=values[key >> 32], score=score, rows=rows, weight=weight, total=total)
        for key, score, rows, weight, total in zip(keys, scores, *best.tolist(), totals, strict=True)
    ]


def _numbers_of_edges(values: Values, totals: Integers, shares: Sequence[Fraction]) -> Integers:
    """Return the index in `values` for each edge to find. `totals` has the weight of each value's rows.

    Each value whose rows have weight gets one edge per share. Raises UsageError if there are no rows to rank, or too many
    edges.
    """
    numbers = [number for number in sorted(range(len(values)), key=values.__getitem__) if totals[number]]
    if not numbers:
        raise UsageError("There are no rows to rank: none has a score and what --by and --within name.")
    if len(numbers) * len(shares) > _MOST_EDGES:
        raise UsageError(f"These are more than {_MOST_EDGES:,} edges of {len(numbers)} values. Ask for fewer buckets.")
    return np.repeat(numbers, len(shares))


def _counted(blocks: Iterable[Rows], known: Integers, lowest: int, bits: int, kept: list[Rows] | None) -> Integers:
    """Count the rows, and sum their weights, for each key prefix in `known` and each value of the next `bits` bits.

    Returns shape (2, prefixes, 2**bits + 1): counts, then weights. Index v of the last axis is for the rows whose bits have
    the value v or more. `lowest` is the position of the lowest of these bits. Adds the rows with a known prefix to `kept`,
    unless it is None.
    """
    size = len(known) << bits
    counted = np.zeros((2, size), np.int64)
    for keys, weights in blocks:
        beginnings = keys >> (lowest + bits)
        places = np.searchsorted(known, beginnings) % len(known)
        here = known[places] == beginnings
        keys, weights = keys[here], weights[here]
        if kept is not None:
            kept.append((keys, weights))
        slots = (places[here] << bits) + (keys >> lowest) % (1 << bits)
        counted[0] += np.bincount(slots, minlength=size)
        counted[1] += np.bincount(slots, weights, minlength=size).astype(np.int64)
    or_higher = counted.reshape(2, len(known), -1)[:, :, ::-1].cumsum(axis=2)[:, :, ::-1]
    return np.pad(or_higher, ((0, 0), (0, 0), (0, 1)))
