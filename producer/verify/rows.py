"""Check the rows of one shard: compare its data file and scores file with each other, the receipt and the spec.

Knows nothing of the input. Keeps one row group in memory, plus one number and one score per row of the shard.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from shardsift.fleet.errors import UsageError
from shardsift.fleet.inputs.drop_lists import loaded_lists
from shardsift.fleet.process.wording import counted
from shardsift.fleet.run.filter import filter_of_thread
from shardsift.fleet.run.output_columns import ERROR, ROW, SHARD, TEXT_DIGEST, output_fields, row_fields, scores_schema
from shardsift.fleet.run.receipt import Receipt, empty_histogram, with_values
from shardsift.fleet.run.spec import RunSpec
from shardsift.fleet.run.text import digests_in
from shardsift.fleet.storage.parquet import RowGroups
from shardsift.producer.verify.verification import Fault


@dataclass(frozen=True, kw_only=True)
class ScoredRows:
    added: pa.Table  # the columns that the run adds
    errored: npt.NDArray[np.bool_]
    first_row: int  # in the file
    text_digests: dict[tuple[int, int], list[str]]  # (first row, end) of each window → digest of each scoring's texts
    row_digests: pa.ChunkedArray | None = None  # of each row's text, if the run keeps each text once


def scored_rows(
    scores: RowGroups, receipt: Receipt, spec: RunSpec, *, rows_of_file: int
) -> tuple[ScoredRows, list[Fault]]:
    """Read and check a shard's scores. `rows_of_file` is the number of rows of all shards in its scores file."""
    path, table, rows = receipt.scores.path, scores.table(receipt.scored), scores.file.metadata.num_rows
    faults = [Fault(path=path, problem=problem) for problem in _score_problems(table, receipt, spec)]
    if rows != rows_of_file:
        problem = f"holds {counted(rows, 'row')}, its receipt says {rows_of_file:,}"
        faults.insert(0, Fault(path=path, problem=problem))
    names = [field.name for field in output_fields(spec)]
    errored = pc.is_valid(table[ERROR.name]).to_numpy() if ERROR.name in table.column_names else np.zeros(0, np.bool_)
    added = table.select([name for name in names if name in table.column_names])
    rows_scored = ScoredRows(
        added=added,
        errored=errored,
        first_row=receipt.first_row,
        text_digests=digests_in(scores.file, receipt),
        row_digests=table[TEXT_DIGEST.name] if TEXT_DIGEST.name in table.column_names else None,
    )
    return rows_scored, faults


def _score_problems(table: pa.Table, receipt: Receipt, spec: RunSpec) -> Iterator[str]:
    expected = scores_schema(spec)
    if not table.schema.equals(expected):
        yield f"has other columns than the run's spec says: {_columns(table.schema)}, not {_columns(expected)}"
        return
    if not np.array_equal(table[ROW.name].to_numpy(), receipt.first_row + np.arange(len(table))):
        yield f"its rows are not numbered from {receipt.first_row:,}, each once"
    if set(pc.unique(table[SHARD.name]).to_pylist()) - {receipt.shard}:
        yield f"has rows of other shards than {receipt.shard}"
    errored = len(table) - table[ERROR.name].null_count
    if errored != receipt.rows_errored:
        yield f"has {counted(errored, 'errored row')}, its receipt says {receipt.rows_errored:,}"
    for scoring, listed in zip(spec.scorings, receipt.scorings, strict=True):
        columns = (scoring.score_column, *scoring.label_histogram_columns)
        # Receipts of earlier versions have no histograms of labels.
        histograms = (listed.histogram, *listed.label_histograms)
        for column, histogram in zip(columns, histograms, strict=False):
            values = table[column].drop_null().to_numpy()
            if with_values(empty_histogram(scoring.function_to_apply), values[~np.isnan(values)]) != histogram:
                yield f'its scores in "{column}" are spread differently than its receipt says'


def kept_faults(
    data: RowGroups, rows: ScoredRows, receipt: Receipt, spec: RunSpec, *, rows_of_file: int
) -> list[Fault]:
    """Check a shard's kept rows against its scores. `rows_of_file` is the number of rows of all shards in its data file."""
    problems = _kept_problems(data, rows, receipt, spec, rows_of_file)
    return [Fault(path=receipt.data.path, problem=problem) for problem in problems]


def _kept_problems(
    data: RowGroups, rows: ScoredRows, receipt: Receipt, spec: RunSpec, rows_of_file: int
) -> Iterator[str]:
    names, expected = data.file.schema_arrow.names, _kept_names(spec)
    if names != expected:
        yield f"has other columns than the run's spec says: {', '.join(names)}, not {', '.join(expected)}"
        return
    if data.file.metadata.num_rows != rows_of_file:
        yield f"holds {counted(data.file.metadata.num_rows, 'row')}, its receipt says {rows_of_file:,}"
    if spec.where and (refused := _refused_rows(data, receipt, spec)):
        yield f"{refused:,} of its rows do not pass the filter {spec.where}"
    for one in loaded_lists(spec.drop_lists):
        tables = data.rows(receipt.kept, [one.described.column])
        if listed := sum(len(one.rows_in(table)) for table in tables):
            yield f"{listed:,} of its rows are in the drop list {one.described.option}"
    yield from _place_problems(data, rows, receipt, spec)


def _kept_names(spec: RunSpec) -> list[str]:
    return [*(name for name, _ in spec.columns), *(field.name for field in row_fields(spec)), *spec.output_columns]


def _refused_rows(data: RowGroups, receipt: Receipt, spec: RunSpec) -> int:
    try:
        keep = filter_of_thread(spec.where or "", data.file.schema_arrow)
    except UsageError:  # the file lacks a column of the filter, which the column check has already reported
        return 0
    return sum(len(table) - len(keep.keep(table)) for table in data.rows(receipt.kept))


def _place_problems(data: RowGroups, rows: ScoredRows, receipt: Receipt, spec: RunSpec) -> Iterator[str]:
    shard_column, row_column = spec.row_columns
    columns = [shard_column, row_column, *rows.added.column_names]
    table = data.table(receipt.kept, columns)
    indices = table[row_column].to_numpy() - receipt.first_row
    if set(pc.unique(table[shard_column]).to_pylist()) - {receipt.shard}:
        yield f"has rows of other shards than {receipt.shard}"
    if np.any(np.diff(indices) <= 0):
        yield "has a row twice, or rows out of order"
    if len(indices) and (indices.min() < 0 or indices.max() >= len(rows.added)):
        yield "has rows that the scores file does not have"
    elif not _same_rows(table.select(rows.added.column_names), rows.added.take(pa.array(indices))):
        yield "has other scores than the scores file"
    elif rows.errored[indices].any():
        yield "has rows that could not be scored"


def _same_rows(one: pa.Table, other: pa.Table) -> bool:
    return all(same_values(one[name], other[name]) for name in one.column_names)


def same_values(one: pa.ChunkedArray, other: pa.ChunkedArray) -> bool:
    """Return whether two columns hold the same values. Unlike in Arrow, NaN equals NaN."""
    return bool(one.equals(other)) or _same(one.combine_chunks(), other.combine_chunks())


def _same(one: pa.Array, other: pa.Array) -> bool:
    one, other = _stored(one), _stored(other)
    kind = one.type
    if any(is_of(kind) != is_of(other.type) for is_of in (pa.types.is_nested, pa.types.is_struct)):
        return False
    if not one.is_valid().equals(other.is_valid()):
        return False
    if pa.types.is_struct(kind):
        names = [[field.name for field in values.type] for values in (one, other)]
        return names[0] == names[1] and all(map(_same, one.flatten(), other.flatten()))
    if pa.types.is_nested(kind):
        lengths = [pc.list_value_length(values).cast(pa.int64()) for values in (one, other)]
        return bool(lengths[0].equals(lengths[1])) and _same(one.flatten(), other.flatten())
    try:
        one, other = one.drop_null(), other.drop_null().cast(kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):  # the type cannot hold these values
        return False
    if pa.types.is_floating(kind):
        is_number = [pc.invert(pc.is_nan(values.cast(pa.float64()))) for values in (one, other)]
        if not is_number[0].equals(is_number[1]):
            return False
        one, other = (values.filter(where) for values, where in zip((one, other), is_number, strict=True))
    return bool(one.equals(other))


def _stored(values: pa.Array) -> pa.Array:
    """Turn dictionaries and extension types into plain values, and a map into a list of pairs."""
    if isinstance(values, pa.ExtensionArray):
        return _stored(values.storage)
    if pa.types.is_dictionary(values.type):
        return values.dictionary_decode()
    if pa.types.is_map(values.type):
        return values.cast(pa.list_(pa.struct([values.type.key_field, values.type.item_field])))
    return values


def _columns(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in schema)
