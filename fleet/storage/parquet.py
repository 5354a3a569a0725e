"""Write a Parquet file as the Hub's viewer and DuckDB like it, and read the rows of one shard back.

The bytes depend only on the rows. Knows nothing of what they mean.
"""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from fleet.run.receipt import RowsOfFile
from fleet.storage.errors import translated

_ROW_GROUP_BYTES = 64 << 20  # in Arrow; the Hub's viewer recommends row groups of about 100 MB
_ROW_GROUP_ROWS = 100_000


@dataclass(frozen=True, kw_only=True)
class WrittenFile:
    path: Path
    size_bytes: int
    sha256: str


class ParquetFileWriter:
    """Writes one Parquet file. The size of its row groups does not depend on the size of the tables passed in."""

    def __init__(self, file: Path, schema: pa.Schema) -> None:
        self._path = file
        self._pending: list[pa.Table] = []
        with translated(f"Writing {file.name}"):
            self._file = _HashedFile(file)
            self._writer = pq.ParquetWriter(
                self._file, schema, compression="zstd", use_content_defined_chunking=True, write_page_index=True
            )

    def write(self, table: pa.Table) -> None:
        self._pending.append(table)
        full = sum(table.nbytes for table in self._pending) >= _ROW_GROUP_BYTES
        if full or sum(len(table) for table in self._pending) >= _ROW_GROUP_ROWS:
            self._flush()

    def close(self, **metadata: str) -> WrittenFile:
        self._flush()
        with translated(f"Writing {self._path.name}"):
            self._writer.add_key_value_metadata(metadata)
            self._writer.close()
            self._file.close()
        return WrittenFile(path=self._path, size_bytes=self._file.size_bytes, sha256=self._file.sha256.hexdigest())

    def _flush(self) -> None:
        rows = pa.concat_tables(self._pending).combine_chunks() if self._pending else None
        self._pending = []
        if rows is not None and len(rows):
            with translated(f"Writing {self._path.name}"):
                self._writer.write_table(rows, row_group_size=len(rows))


class _HashedFile:
    """An output file for Arrow that computes its sha256 while it is written, so that a large file is not read again."""

    closed = False

    def __init__(self, path: Path) -> None:
        self.size_bytes = 0
        self.sha256 = hashlib.sha256()
        self._file = pa.OSFile(str(path), "wb")

    def write(self, content: bytes) -> None:
        self._file.write(content)
        self.sha256.update(content)
        self.size_bytes += len(content)

    def flush(self) -> None:
        self._file.flush()

    def close(self) -> None:
        self._file.close()


def rows_of(
    file: pq.ParquetFile, found: RowsOfFile, *, most_rows: int, columns: Sequence[str] | None = None
) -> Iterator[pa.RecordBatch]:
    """The rows of a shard, without those of other shards in the same file."""
    first, end = found.first_row, found.first_row + found.rows
    if found.file.rows == found.rows:  # all rows, even if the file has more of them than it should
        end = file.metadata.num_rows
    rows = [file.metadata.row_group(group).num_rows for group in range(file.num_row_groups)]
    starts = [0, *accumulate(rows)]
    groups = [group for group in range(len(rows)) if first < starts[group + 1] and starts[group] < end]
    place = starts[groups[0]] if groups else 0
    for batch in file.iter_batches(most_rows, row_groups=groups, columns=columns, use_threads=False):
        start, stop = max(first - place, 0), min(end - place, len(batch))
        if start < stop:
            yield batch.slice(start, stop - start)
        place += len(batch)


def table_of(file: pq.ParquetFile, found: RowsOfFile, columns: Sequence[str] | None = None) -> pa.Table:
    """The rows of a shard at once, with these columns or all."""
    fields = map(file.schema_arrow.field, columns or file.schema_arrow.names)
    return pa.Table.from_batches(rows_of(file, found, most_rows=_ROW_GROUP_ROWS, columns=columns), pa.schema(fields))
