"""Write Parquet files that suit the Hub's viewer and DuckDB, and read the rows of one shard back.

A file's bytes depend only on its rows. Knows nothing of the meaning of rows.
"""

import hashlib
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Self

import pyarrow as pa
import pyarrow.parquet as pq

from shardsift.fleet.run.receipt import RowsOfFile
from shardsift.fleet.storage.errors import translated

_ROW_GROUP_BYTES = 64 << 20  # in Arrow; the Hub's viewer recommends row groups of about 100 MB
_ROW_GROUP_ROWS = 100_000


@dataclass(frozen=True, kw_only=True)
class WrittenFile:
    path: Path
    size_bytes: int
    sha256: str


class ParquetFileWriter:
    """A writer for one Parquet file. Its row groups do not depend on the sizes of the tables passed in.

    As a context manager, it always closes the file at the end. An open handle would keep a full disk full after the
    file is deleted.
    """

    def __init__(self, file: Path, schema: pa.Schema, *, has_checksums: bool = False) -> None:
        """Open the file.

        `has_checksums` adds a checksum to each page, for readers that do not check the file's sha256.
        """
        self._path = file
        self._pending: list[pa.Table] = []
        self._pending_bytes = self._pending_rows = 0
        with translated(f"Writing {file.name}"):
            self._file = pa.OSFile(str(file), "wb")
            self._writer = pq.ParquetWriter(
                self._file,
                schema,
                compression="zstd",
                use_content_defined_chunking=True,
                write_page_index=True,
                write_page_checksum=has_checksums,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._writer.is_open = False  # otherwise its destructor writes the footer
        self._file.close()

    def write(self, table: pa.Table) -> None:
        self._pending.append(table)
        self._pending_bytes += table.nbytes
        self._pending_rows += len(table)
        if self._pending_bytes >= _ROW_GROUP_BYTES or self._pending_rows >= _ROW_GROUP_ROWS:
            self._flush()

    def close(self, **metadata: str) -> WrittenFile:
        self._flush()
        with translated(f"Writing {self._path.name}"):
            self._writer.add_key_value_metadata(metadata)
            self._writer.close()
            self._file.close()
            with self._path.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
        return WrittenFile(path=self._path, size_bytes=self._path.stat().st_size, sha256=digest)

    def _flush(self) -> None:
        rows = pa.concat_tables(self._pending).combine_chunks() if self._pending else None
        self._pending, self._pending_bytes, self._pending_rows = [], 0, 0
        if rows is not None and len(rows):
            with translated(f"Writing {self._path.name}"):
                self._writer.write_table(rows, row_group_size=len(rows))


class RowGroups:
    """A reader for files of ParquetFileWriter.

    It keeps the last row group in memory, because the next shard may have rows in it.
    """

    def __init__(self, file: pq.ParquetFile) -> None:
        self.file = file
        groups = (file.metadata.row_group(number).num_rows for number in range(file.num_row_groups))
        self._starts = [0, *accumulate(groups)]
        self._read: dict[tuple[str, ...], tuple[int, pa.Table]] = {}

    def rows(self, found: RowsOfFile, columns: Sequence[str] = ()) -> Iterator[pa.Table]:
        """Yield the rows of one shard as tables. If `columns` is empty, they have all columns."""
        has_all = found.file.rows == found.rows  # then read to the end, even if the file has more rows than it should
        return self.between(found.first_row, self._starts[-1] if has_all else found.first_row + found.rows, columns)

    def between(self, start: int, end: int, columns: Sequence[str] = ()) -> Iterator[pa.Table]:
        """Yield the rows from `start` up to `end` (exclusive), one table per row group."""
        while start < min(end, self._starts[-1]):
            number = bisect_right(self._starts, start) - 1
            stop = min(end, self._starts[number + 1])
            yield self._group(number, tuple(columns)).slice(start - self._starts[number], stop - start)
            start = stop

    def table(self, found: RowsOfFile, columns: Sequence[str] = ()) -> pa.Table:
        schema = self.file.schema_arrow
        fields = map(schema.field, columns or schema.names)
        return pa.concat_tables([pa.schema(fields).empty_table(), *self.rows(found, columns)])

    def _group(self, number: int, columns: tuple[str, ...]) -> pa.Table:
        if columns not in self._read or self._read[columns][0] != number:
            found = self.file.read_row_group(number, columns=columns or None, use_threads=False)
            self._read[columns] = number, found.select(columns) if columns else found  # "a.b" also matches b in a
        return self._read[columns][1]
