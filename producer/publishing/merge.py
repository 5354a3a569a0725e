"""Merge the kept rows of consecutive shards into files of about the size that the run asks for, in the input's order.

The receipts say which file has the rows of which shards, and the ledger keeps no other record. So a finalizer that died is
followed by one that goes on with the next file.
"""

import hashlib
import logging
import shutil
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import accumulate, groupby
from pathlib import Path
from tempfile import TemporaryDirectory
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq

from fleet.errors import OutputDamaged, ShardError
from fleet.ledger import Ledger
from fleet.process.wording import counted
from fleet.run.receipt import OutputFile, Receipt
from fleet.run.spec import RunSpec, data_path_of
from fleet.storage.errors import translated
from fleet.storage.output import Output
from fleet.storage.parquet import ParquetFileWriter, kept_rows

_ROWS = 1000  # written at once; row groups end after a multiple of it
logger = logging.getLogger(__name__)


def merge_shards(ledger: Ledger, spec: RunSpec, output: Output, receipts: Iterable[Receipt], *, is_over: bool) -> int:
    """Write the data files that the spec asks for and that are not there yet. Returns how many. May run twice.

    `receipts` are those of the run's first shards. Only if the run `is_over`, the last file may be smaller than the target.
    Raises OutputDamaged for a stored file that is lost or damaged, and what the output raises.
    """
    if spec.target_file_bytes is None:
        return 0
    groups = [group for group in _groups(receipts, spec.target_file_bytes, is_over=is_over) if not _is_in_place(group)]
    for group in groups:
        output.save(group)  # else they cannot be read from the Hub
        data = _merged(output, group)
        first_rows = accumulate((receipt.rows_kept for receipt in group), initial=0)
        moved = [
            replace(
                receipt,
                data=data,
                data_first_row=first,
                own_data_bytes=receipt.own_data_bytes or receipt.data.size_bytes,
            )
            for receipt, first in zip(group, first_rows, strict=False)
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
        if size_bytes >= target_bytes:
            yield group
            group, size_bytes = [], 0
    if is_over and group:
        yield group


def _is_in_place(shards: Sequence[Receipt]) -> bool:
    """Whether a file has the rows of these shards and no others."""
    data = shards[0].data
    *first_rows, rows = accumulate((receipt.rows_kept for receipt in shards), initial=0)
    return (
        all(receipt.data == data for receipt in shards)
        and [receipt.data_first_row for receipt in shards] == first_rows
        and (data.path, data.rows) == (data_path_of(shards[0].shard), rows)
    )


def _merged(output: Output, group: Sequence[Receipt]) -> OutputFile:
    """Write and stage the file of these shards. Finalizers that merge the same shards do not touch each other's copies."""
    path = data_path_of(group[0].shard)
    with TemporaryDirectory(prefix="shardsift-merge-") as folder, translated(f"Merging shards into {path}"):
        tables = _stored_rows(output, group, Path(folder) / "stored.parquet")
        rest = next(tables)
        schema = rest.schema
        writer = ParquetFileWriter(Path(folder) / "merged.parquet", schema)
        for table in tables:
            rest = pa.concat_tables([rest, table.cast(schema)])
            while len(rest) >= _ROWS:
                writer.write(rest.slice(0, _ROWS))
                rest = rest.slice(_ROWS)
        writer.write(rest)
        file = writer.close()
        return OutputFile(
            path=path,
            staged_path=output.stage(file.path, path, attempt=f"merged-{uuid4().hex}"),
            size_bytes=file.size_bytes,
            sha256=file.sha256,
            rows=sum(receipt.rows_kept for receipt in group),
        )


def _stored_rows(output: Output, group: Sequence[Receipt], copy: Path) -> Iterator[pa.Table]:
    """The kept rows of the shards, a few at a time; first of each file an empty table."""
    for data, found in groupby(group, key=lambda receipt: receipt.data):
        shards = [*found]
        if problem := _problem_of_copy(output, data, copy):
            raise OutputDamaged(dict.fromkeys((receipt.shard for receipt in shards), problem))
        with pq.ParquetFile(copy) as file:
            yield file.schema_arrow.empty_table()
            for receipt in shards:
                for batch in kept_rows(file, receipt, most_rows=_ROWS):
                    yield pa.Table.from_batches([batch])


def _problem_of_copy(output: Output, data: OutputFile, copy: Path) -> str | None:
    """Copy a stored file. Returns why that is not possible, if the file is the reason."""
    try:
        with output.open_file(data) as stored, copy.open("wb") as file:
            shutil.copyfileobj(stored, file)
    except ShardError as error:
        if error.of_machine:  # the file itself may be sound
            raise
        return str(error)
    with copy.open("rb") as file:
        is_right = hashlib.file_digest(file, "sha256").hexdigest() == data.sha256
    return None if is_right else f"{data.path} has changed since it was written (its sha256 differs)"
