"""Merge consecutive shards, in the input's order, into data files of about the target size, and into scores files.

Only the receipts record which file has a shard's rows. So if a finalizer dies, another one continues with the next
file. Which shards share a scores file depends only on names and row counts, so a run with another filter has the same
scores files.

Readers take a year, a language or a split from a path, so shards share a file only if their names agree in these.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate, chain, groupby
from uuid import uuid4

import pyarrow as pa

from shardsift.fleet.errors import OutputDamaged, ShardError
from shardsift.fleet.ledger import Ledger
from shardsift.fleet.process.wording import counted
from shardsift.fleet.run.output_columns import plain_type
from shardsift.fleet.run.receipt import OutputFile, Receipt, Receipts, RowsOfFile
from shardsift.fleet.run.spec import MOST_SHARDS_OF_FILE, RunSpec, data_path_of, merge_group, scores_path_of
from shardsift.fleet.run.text import as_metadata, digests_in
from shardsift.fleet.storage.errors import translated
from shardsift.fleet.storage.open_output import sound_copy
from shardsift.fleet.storage.output import Output, output_files
from shardsift.fleet.storage.parquet import ParquetFileWriter, RowGroups
from shardsift.fleet.storage.scratch import scratch_folder

_MOST_SCORES = 10_000_000  # rows of a scores file; if it is damaged, all its shards are scored again
AT_ONCE = 2  # files merged at once: one is computed while the other is sent; each takes some 100 MB
logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class FileKind:
    """A kind of files to merge, data files or scores files, with all that differs between the two."""

    part_of: Callable[[Receipt], RowsOfFile]
    path_of: Callable[[str], str]
    size_of: Callable[[Receipt], int]  # must not change when shards are merged
    moved: Callable[[Receipt, OutputFile, int], Receipt]  # receipt, file, first row in it → new receipt
    most: Callable[[RunSpec], int]  # sum of sizes up to which a file is filled
    step_rows: int  # rows written at once; row groups end after a multiple of it


def _own_data_bytes(receipt: Receipt) -> int:
    return receipt.own_data_bytes or receipt.data.size_bytes


DATA = FileKind(
    part_of=lambda receipt: receipt.kept,
    path_of=data_path_of,
    size_of=_own_data_bytes,
    moved=lambda receipt, file, first_row: replace(
        receipt, data=file, data_first_row=first_row, own_data_bytes=_own_data_bytes(receipt)
    ),
    most=lambda spec: spec.target_file_bytes or 0,
    step_rows=100,  # because rows may be of any size
)
SCORES = FileKind(
    part_of=lambda receipt: receipt.scored,
    path_of=scores_path_of,
    size_of=lambda receipt: receipt.rows_in,
    moved=lambda receipt, file, first_row: replace(receipt, scores=file, scores_first_row=first_row),
    most=lambda spec: _MOST_SCORES,
    step_rows=10_000,
)


def merge_shards(
    ledger: Ledger, spec: RunSpec, output: Output, kind: FileKind, receipts: Receipts, *, is_over: bool
) -> int:
    """Write the merged files of one kind that do not exist yet. Returns their number. May run twice.

    `receipts` are the current receipts of the run's first shards, in order. The last group of shards is merged only if it
    fills a file or the run `is_over`. Raises OutputDamaged if a stored file is lost or damaged, and other errors of the
    output.
    """
    if spec.target_file_bytes is None:
        return 0
    groups, due = list[Receipts](), list[bool]()  # slices of `receipts`, not copies
    for group in _groups(receipts, kind, kind.most(spec), is_over=is_over):
        is_due = not _is_in_place(group, kind)
        if is_due:
            groups.append(receipts[len(due) : len(due) + len(group)])
        due += [is_due] * len(group)
    output.save(readable(receipts.only(due)))  # so that they can be read: the Hub serves only committed files
    with ThreadPoolExecutor(AT_ONCE, "merge") as pool:
        for _ in pool.map(partial(_merge, ledger, spec, output, kind), groups):  # raises the first error
            pass
    return len(groups)


def _merge(ledger: Ledger, spec: RunSpec, output: Output, kind: FileKind, shards: Sequence[Receipt]) -> None:
    group = list(shards)
    file = merged_file(output, spec, group, kind)
    starts = zip(group, _first_rows(group, kind), strict=True)
    moved = [kind.moved(receipt, file, first_row) for receipt, first_row in starts]
    run_id = group[0].run_id
    move_rows(ledger, output, group, moved)
    merged = counted(len(group), "shard")
    logger.info("Run %s: merged %s into %s", run_id, merged, file.path, extra={"run_id": run_id})


def move_rows(ledger: Ledger, output: Output, before: Sequence[Receipt], moved: Sequence[Receipt]) -> None:
    """Record new receipts for shards of one run, in the ledger and with the output. May run twice.

    The ledger skips shards that were queued or scored again meanwhile. If it skips any, none of the receipts is stored with
    the output.
    """
    if ledger.move_rows(before[0].run_id, zip(before, moved, strict=True)) == len(before):
        for receipt in moved:
            output.store_receipt(receipt)


def readable(receipts: Receipts) -> Receipts:
    """Select receipts whose files do not conflict on a branch.

    If two receipts have different files for the same path, selects only the first.
    """
    shared = {
        file.path
        for receipt in receipts
        for file in output_files(receipt)
        if file.path not in (data_path_of(receipt.shard), scores_path_of(receipt.shard))
    }
    taken: dict[str, str] = {}

    def is_readable(receipt: Receipt) -> bool:
        files = [file for file in output_files(receipt) if file.path in shared]
        return all(taken.setdefault(file.path, file.sha256) == file.sha256 for file in files)

    return receipts.only(map(is_readable, receipts))


def _groups(receipts: Iterable[Receipt], kind: FileKind, most: int, *, is_over: bool) -> Iterator[list[Receipt]]:
    """Group consecutive shards that will share a file. A group is full when its sizes add up to `most`.

    Yields a last group that is not full only if the run `is_over`. Depends only on the shards' names and sizes.
    """
    group: list[Receipt] = []
    size = 0
    for receipt in receipts:
        if group and merge_group(receipt.shard) != merge_group(group[0].shard):
            yield group
            group, size = [], 0
        group.append(receipt)
        size += kind.size_of(receipt)
        if size >= most or len(group) == MOST_SHARDS_OF_FILE:
            yield group
            group, size = [], 0
    if is_over and group:
        yield group


def _is_in_place(shards: Sequence[Receipt], kind: FileKind) -> bool:
    """Return whether one file has the rows of exactly these shards."""
    parts = [kind.part_of(receipt) for receipt in shards]
    file, rows = parts[0].file, sum(part.rows for part in parts)
    starts = zip(_first_rows(shards, kind), parts, strict=True)
    in_order = [RowsOfFile(file, first_row, part.rows) for first_row, part in starts]
    return parts == in_order and (file.path, file.rows) == (kind.path_of(shards[0].shard), rows)


def _first_rows(shards: Sequence[Receipt], kind: FileKind) -> list[int]:
    return [0, *accumulate(kind.part_of(receipt).rows for receipt in shards[:-1])]


def merged_file(
    output: Output,
    spec: RunSpec,
    group: Sequence[Receipt],
    kind: FileKind,
    *,
    chosen: Callable[[pa.Table], pa.Table] = lambda table: table,
    is_alike: bool = True,
) -> OutputFile:
    """Write and stage a file of these shards. Each call stages its own copy, so concurrent finalizers do not conflict.

    `chosen` selects the rows of a table that are written. Schema metadata, such as the names of classes, is kept only if it
    is equal in all shards. If a shard has other metadata, starts again with `is_alike=False`.
    """
    path = kind.path_of(group[0].shard)
    with scratch_folder(None) as folder, translated(f"Merging shards into {path}"):
        stored = _stored(output, group, kind)
        first = next(stored)
        metadata = first[0].file.schema_arrow.metadata
        schema = _as_written(first[0].file.schema_arrow, metadata if is_alike else None)
        with ParquetFileWriter(folder / "merged.parquet", schema, has_checksums=spec.unique) as writer:
            rest, rows = schema.empty_table(), 0
            texts: dict[int, Sequence[str]] = {}  # digests by the first row of their window in the file
            for (groups, receipt), first_row in zip(chain([first], stored), _first_rows(group, kind), strict=True):
                if is_alike and groups.file.schema_arrow.metadata != metadata:
                    return merged_file(output, spec, group, kind, chosen=chosen, is_alike=False)
                if kind is SCORES:
                    windows = digests_in(groups.file, receipt)
                    texts |= {first_row + start - receipt.first_row: digests for (start, _), digests in windows.items()}
                for table in groups.rows(kind.part_of(receipt)):
                    rest = pa.concat_tables([rest, chosen(table).cast(schema)])
                    while len(rest) >= kind.step_rows:
                        writer.write(rest.slice(0, kind.step_rows))
                        rest, rows = rest.slice(kind.step_rows), rows + kind.step_rows
            writer.write(rest)
            merged = writer.close(**as_metadata(texts) if kind is SCORES else {})
        return OutputFile(
            path=path,
            staged_path=output.stage(merged.path, path, attempt=f"merged-{uuid4().hex}"),
            size_bytes=merged.size_bytes,
            sha256=merged.sha256,
            rows=rows + len(rest),
        )


def _as_written(schema: pa.Schema, metadata: Mapping[bytes, bytes] | None) -> pa.Schema:
    """Restore the schema that the worker wrote. pyarrow renames the entries of a map when it reads them."""
    return pa.schema([field.with_type(plain_type(field.type)) for field in schema], metadata=metadata)


def _stored(output: Output, group: Sequence[Receipt], kind: FileKind) -> Iterator[tuple[RowGroups, Receipt]]:
    for stored, found in groupby(group, key=lambda receipt: kind.part_of(receipt).file):
        shards = [*found]
        try:
            copy = sound_copy(output.uri, shards[0].run_id, stored)
        except ShardError as error:
            if error.of_machine:  # the file itself may be sound
                raise
            raise OutputDamaged(dict.fromkeys((receipt.shard for receipt in shards), str(error))) from error
        with copy:
            groups = RowGroups(copy)
            yield from ((groups, receipt) for receipt in shards)
