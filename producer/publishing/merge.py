"""Merge consecutive shards, in the input's order: a data file of about the size that the run asks for, and a scores file of them.

The receipts say which files have the rows of which shards, and the ledger keeps no other record. So a finalizer that died is
followed by one that goes on with the next files.
"""

import hashlib
import logging
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import accumulate, chain, groupby
from operator import attrgetter
from pathlib import Path
from tempfile import TemporaryDirectory
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq

from fleet.errors import OutputDamaged, ShardError
from fleet.ledger import Ledger
from fleet.process.wording import counted
from fleet.run.receipt import OutputFile, Receipt, Receipts, RowsOfFile
from fleet.run.spec import RunSpec, data_path_of, scores_path_of
from fleet.run.text import as_metadata, digests_in
from fleet.storage.errors import translated
from fleet.storage.output import Output
from fleet.storage.parquet import ParquetFileWriter, rows_of

_ROWS = 1000  # written at once; row groups end after a multiple of it
MOST_SHARDS = 500  # of a file: each costs the Hub four requests at once, and metadata that are read for each of them
PartOf = Callable[[Receipt], RowsOfFile]
_KEPT: PartOf = attrgetter("kept")
_SCORED: PartOf = attrgetter("scored")
logger = logging.getLogger(__name__)


def merge_shards(ledger: Ledger, spec: RunSpec, output: Output, receipts: Iterable[Receipt], *, is_over: bool) -> int:
    """Write the files that the spec asks for and that are not there yet. Returns for how many groups of shards. May run twice.

    `receipts` are those of the run's first shards. Only if the run `is_over`, the last file may be smaller than the target.
    Raises OutputDamaged for a stored file that is lost or damaged, and what the output raises.
    """
    if spec.target_file_bytes is None:
        return 0
    found = _groups(receipts, spec.target_file_bytes, is_over=is_over)
    groups = [Receipts(group) for group in found if not _is_in_place(group)]
    output.save(Receipts(chain.from_iterable(groups)))  # else they cannot be read from the Hub
    for group in map(list, groups):
        data = _merged(output, group, _KEPT, data_path_of(group[0].shard))
        scores = _merged(output, group, _SCORED, scores_path_of(group[0].shard))
        moved = [
            replace(
                receipt,
                data=data,
                data_first_row=first,
                own_data_bytes=receipt.own_data_bytes or receipt.data.size_bytes,
                scores=scores,
                scores_first_row=scores_first,
            )
            for receipt, first, scores_first in zip(
                group, _first_rows(group, _KEPT), _first_rows(group, _SCORED), strict=True
            )
        ]
        if ledger.move_rows(spec.run_id, zip(group, moved, strict=True)) == len(group):
            for receipt in moved:
                output.store_receipt(receipt)
        merged = counted(len(group), "shard")
        logger.info("Run %s: merged %s into %s", spec.run_id, merged, data.path, extra={"run_id": spec.run_id})
    return len(groups)


def _groups(receipts: Iterable[Receipt], target_bytes: int, *, is_over: bool) -> Iterator[list[Receipt]]:
    """Split the shards into those of each file. It follows from the sizes of their own data files alone."""
    group: list[Receipt] = []
    size_bytes = 0
    for receipt in receipts:
        group.append(receipt)
        size_bytes += receipt.own_data_bytes or receipt.data.size_bytes
        if size_bytes >= target_bytes or len(group) == MOST_SHARDS:
            yield group
            group, size_bytes = [], 0
    if is_over and group:
        yield group


def _is_in_place(shards: Sequence[Receipt]) -> bool:
    """Whether files have the rows of these shards and no others."""
    return _has_all(shards, _KEPT, data_path_of(shards[0].shard)) and _has_all(
        shards, _SCORED, scores_path_of(shards[0].shard)
    )


def _has_all(shards: Sequence[Receipt], part_of: PartOf, path: str) -> bool:
    parts = [part_of(receipt) for receipt in shards]
    file, rows = parts[0].file, sum(part.rows for part in parts)
    in_order = [
        RowsOfFile(file, first, part.rows) for first, part in zip(_first_rows(shards, part_of), parts, strict=True)
    ]
    return parts == in_order and (file.path, file.rows) == (path, rows)


def _first_rows(shards: Sequence[Receipt], part_of: PartOf) -> list[int]:
    """Where the rows of each shard begin in a file of all of them."""
    return [0, *accumulate(part_of(receipt).rows for receipt in shards[:-1])]


def _merged(output: Output, group: Sequence[Receipt], part_of: PartOf, path: str) -> OutputFile:
    """Write and stage a file of these shards. Finalizers that merge the same shards do not touch each other's copies."""
    with TemporaryDirectory(prefix="shardsift-merge-") as folder, translated(f"Merging shards into {path}"):
        stored = _stored(output, group, part_of, Path(folder) / "stored.parquet")
        first = next(stored)
        schema = first[0].schema_arrow
        writer, rest = ParquetFileWriter(Path(folder) / "merged.parquet", schema), schema.empty_table()
        texts: dict[int, Sequence[str]] = {}  # their digests, by the first row of a window in the merged file
        rows = 0
        for file, receipt in chain([first], stored):
            if part_of is _SCORED:
                windows = digests_in(file, receipt)
                texts |= {rows + start - receipt.first_row: told for (start, _), told in windows.items()}
            rows += part_of(receipt).rows
            for batch in rows_of(file, part_of(receipt), most_rows=_ROWS):
                rest = pa.concat_tables([rest, pa.Table.from_batches([batch]).cast(schema)])
                while len(rest) >= _ROWS:
                    writer.write(rest.slice(0, _ROWS))
                    rest = rest.slice(_ROWS)
        writer.write(rest)
        merged = writer.close(**as_metadata(texts) if part_of is _SCORED else {})
        staged_path = output.stage(merged.path, path, attempt=f"merged-{uuid4().hex}")
    return OutputFile(path=path, staged_path=staged_path, size_bytes=merged.size_bytes, sha256=merged.sha256, rows=rows)


def _stored(
    output: Output, group: Sequence[Receipt], part_of: PartOf, copy: Path
) -> Iterator[tuple[pq.ParquetFile, Receipt]]:
    """The shards, each with a copy of the file that has its rows."""
    for stored, found in groupby(group, key=lambda receipt: part_of(receipt).file):
        shards = [*found]
        if problem := _problem_of_copy(output, stored, copy):
            raise OutputDamaged(dict.fromkeys((receipt.shard for receipt in shards), problem))
        with pq.ParquetFile(copy) as file:
            yield from ((file, receipt) for receipt in shards)


def _problem_of_copy(output: Output, stored: OutputFile, copy: Path) -> str | None:
    """Copy a stored file. Returns why that is not possible, if the file is the reason."""
    try:
        with output.open_file(stored) as content, copy.open("wb") as file:
            shutil.copyfileobj(content, file)
    except ShardError as error:
        if error.of_machine:  # the file itself may be sound
            raise
        return str(error)
    with copy.open("rb") as file:
        is_right = hashlib.file_digest(file, "sha256").hexdigest() == stored.sha256
    return None if is_right else f"{stored.path} has changed since it was written (its sha256 differs)"
