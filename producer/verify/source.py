"""Compare one shard with the input: filter the input again by the stored scores, and expect the same rows.

Needs no model, because the scores file has the score of every row.
"""

import shlex
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from shardsift.fleet.errors import UsageError
from shardsift.fleet.inputs.drop_lists import content_of, loaded_lists, located
from shardsift.fleet.inputs.identity import are_of_other_bytes
from shardsift.fleet.inputs.input_file import InputFile
from shardsift.fleet.process.wording import counted
from shardsift.fleet.run.filter import Filter, filter_of_thread
from shardsift.fleet.run.output_columns import kept_schema, row_fields
from shardsift.fleet.run.receipt import Receipt
from shardsift.fleet.run.spec import DropList, RunSpec, Shard
from shardsift.fleet.run.text import row_digests, scored_digest
from shardsift.fleet.storage.open_output import Published
from shardsift.fleet.storage.parquet import RowGroups
from shardsift.producer.planning.inputs import absolute_uri, as_scored, list_input, named_as_scored
from shardsift.producer.verify.equal_texts import EqualTexts, Integers
from shardsift.producer.verify.rows import ScoredRows, same_values
from shardsift.producer.verify.verification import Fault

_BATCH_ROWS = 1024


def lists_to_check(
    published: Published, files: Sequence[str], *, needed: bool
) -> tuple[tuple[DropList, ...], tuple[str, ...]]:
    """Load the run's drop lists from `files` and the Hub. Returns them, and the names of lists that were not found.

    Raises UsageError if a list is not found although lists are `needed`, or if a file is not a list of the run.
    """
    lists, uris = published.spec.drop_lists, {content_of(uri)[1]: uri for uri in map(absolute_uri, files)}
    if strangers := [uris[sha256] for sha256 in uris.keys() - {one.sha256 for one in lists}]:
        expected = ", ".join(f"{one.uri}, sha256 {one.sha256}" for one in lists) or "none"
        raise UsageError(f"{strangers[0]} is no drop list of the run at {published.uri}. Its lists: {expected}.")
    found, lost = located(lists, uris)
    if lost and needed:
        named = " ".join(f"--drop-list {shlex.quote(uri)}" for uri in lost)
        raise UsageError(f"The run at {published.uri} kept no row of its drop lists. Name their files: {named}")
    loaded_lists(found)
    return found, lost


def source_shards(
    uris: tuple[str, ...], receipts: Sequence[Receipt], output_uri: str, spec: RunSpec, left_out: Sequence[str] = ()
) -> dict[str, Shard]:
    """List the shards of the input at `uris`, by name. `left_out` names failed shards of the run, which are listed too.

    Raises UsageError if the input has none of the scored shards, or if all of its scored shards have changed.
    """
    files = list_input(*uris, in_subsets=bool(spec.subsets)).shards
    shards = as_scored(named_as_scored(files, spec, receipts, left_out), receipts, left_out)
    scored = {receipt.shard: receipt.source_identity for receipt in receipts}
    common = [shard for name, shard in shards.items() if name in scored]
    if not common:
        raise UsageError(
            f"None of the {counted(len(scored), 'shard')} of {output_uri} is in {', '.join(uris)}. "
            "Name the input of the run with --input."
        )
    if all(are_of_other_bytes(shard.identity, scored[shard.name]) for shard in common):
        raise UsageError(
            f"{', '.join(uris)} is not the input of the run at {output_uri}: it has {_as_named(common)}, but with other "
            "bytes than the run has read. Name the input of the run with --input."
        )
    return shards


def _as_named(shards: list[Shard]) -> str:
    if len(shards) == 1:
        return f"a shard {shards[0].name}"
    return f"{counted(len(shards), 'shard')} of the same names, such as {shards[0].name}"


def unlisted_shards(source: dict[str, Shard], published: Published) -> list[Fault]:
    """Return a fault for each shard of the input that the manifest lacks. Empty if the run has a row limit.

    A shard that only the manifest has is no fault, because `source` may be a part of the input.
    """
    if published.spec.limit_rows:
        return []
    listed = {receipt.shard for receipt in published.receipts}
    unread = source.keys() - listed - set(published.left_out)
    problem = "is missing: the input has this shard"
    return [Fault(path=f"data/{shard}.parquet", problem=problem) for shard in sorted(unread)]


def source_faults(
    source: InputFile,
    shard: Shard,
    data: RowGroups,
    rows: ScoredRows,
    receipt: Receipt,
    spec: RunSpec,
    equal_texts: EqualTexts | None,
) -> list[Fault]:
    """Compare a shard with its input. If `equal_texts` is given, it collects the rows that were left out as duplicates."""
    if are_of_other_bytes(shard.identity, receipt.source_identity):
        problem = f"was made of other bytes than {shard.uri} has now ({receipt.source_identity}, not {shard.identity})"
        return [Fault(path=receipt.data.path, problem=problem)]
    most = receipt.rows_in if spec.limit_rows or shard.row_limit is not None else receipt.rows_in + 1
    if receipt.rows_in != len(rows.added) or source.count_rows(most=most) != receipt.rows_in:
        return [Fault(path=receipt.scores.path, problem="has not the rows of the input")]
    if len(rows.added) and not rows.text_digests:
        return [Fault(path=receipt.scores.path, problem="does not say of which texts its scores are")]
    try:
        chosen: Callable[[Integers], Integers] = _all
        if equal_texts and rows.row_digests is not None:
            chosen = equal_texts.chosen(receipt, data, rows.row_digests)
        difference = _first_difference(_expected(source, rows, receipt.shard, spec, chosen), data, receipt)
    except UsageError as error:
        difference = f"cannot be compared with {shard.uri}: {error}"
    except _OtherTexts as other:
        return [Fault(path=receipt.scores.path, problem=str(other))]
    return [Fault(path=receipt.data.path, problem=difference)] if difference else []


class _OtherTexts(Exception):
    """The texts of the input are not those that were scored."""


def _all(rows: Integers) -> Integers:
    return rows


def _expected(
    source: InputFile, rows: ScoredRows, shard: str, spec: RunSpec, chosen: Callable[[Integers], Integers]
) -> Iterator[pa.Table]:
    """Yield the rows of the input that the run keeps, window by window, without the shard and row columns.

    `chosen` takes the numbers, in the shard, of rows that pass the filter. It returns the numbers of the rows to expect.
    """
    schema = kept_schema(source.schema, spec)
    names = [*source.schema.names, *spec.output_columns]
    keep: Filter | None = None
    lists = loaded_lists(spec.drop_lists)
    batches = source.batches(bad={}, most_rows=_BATCH_ROWS, use_threads=False)
    stream = _RowStream((pa.Table.from_batches([batch]) for batch in batches), source.schema)
    for (first, end), digests in rows.text_digests.items():
        table = stream.take(end - first)
        if [scored_digest(table, scoring) for scoring in spec.scorings] != digests:
            raise _OtherTexts(f"has the scores of other texts than the input's, between its rows {first:,} and {end:,}")
        start = first - rows.first_row
        if rows.row_digests is not None:
            stored = rows.row_digests.slice(start, len(table)).combine_chunks()
            if not row_digests(table, spec.scorings).equals(stored):
                raise _OtherTexts(
                    f"has digests of other texts than the input's, between its rows {first:,} and {end:,}"
                )
        origin = (pa.repeat(shard, len(table)), pa.array(range(first, end), pa.int64()))
        for field, values in zip(row_fields(spec), origin, strict=False):
            table = table.append_column(field, values)
        for field in rows.added.schema:
            table = table.append_column(field, rows.added[field.name].slice(start, len(table)))
        if spec.where and keep is None:
            keep = filter_of_thread(spec.where, table.schema)
        passed = keep.keep(table) if keep else np.arange(len(table))
        kept = passed[~rows.errored[start + passed]]
        for one in lists:
            kept = np.setdiff1d(kept, one.rows_in(table))
        kept = chosen(start + kept) - start
        plain = pa.schema([schema.field(name) for name in names])
        yield table.select(names).take(pa.array(kept)).cast(plain)


def _first_difference(expected: Iterator[pa.Table], data: RowGroups, receipt: Receipt) -> str | None:
    actual = _RowStream(data.rows(receipt.kept), data.file.schema_arrow)
    first = 0
    for table in expected:
        part = actual.take(len(table))
        if len(part) < len(table):
            return f"lacks rows that the filter keeps: it ends after {first + len(part):,}"
        for name in table.column_names:
            if not same_values(table[name], part[name]):
                return (
                    f'differs from the input in column "{name}", between its rows {first:,} and {first + len(table):,}'
                )
        first += len(table)
    return f"has {counted(receipt.rows_kept - first, 'row')} more than the filter keeps" if actual.take(1) else None


class _RowStream:
    def __init__(self, tables: Iterator[pa.Table], schema: pa.Schema) -> None:
        self._tables = tables
        self._rest = schema.empty_table()

    def take(self, count: int) -> pa.Table:
        """Return the next `count` rows, or fewer at the end of the file."""
        while len(self._rest) < count and (table := next(self._tables, None)) is not None:
            self._rest = pa.concat_tables([self._rest, table])
        taken, self._rest = self._rest.slice(0, count), self._rest.slice(count)
        return taken
