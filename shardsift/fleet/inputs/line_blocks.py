"""Read a file of lines, such as JSON Lines or CSV, in blocks of whole records, decompressed.

A file gives the same blocks on every pass. Memory is bounded by a block, or by the longest record if that is longer.
"""

import gzip
import io
import re
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, BinaryIO, Self

import pyarrow as pa

from shardsift.fleet.errors import ShardError
from shardsift.fleet.inputs.columns import ColumnTypes
from shardsift.fleet.inputs.input_file import STEP_ROWS, BadRows, LeftOut, note_bad_rows
from shardsift.fleet.storage.errors import translated

BLOCK_BYTES = 8 << 20  # decompressed
MOST_RECORD_BYTES = 64 << 20  # limit of a record, as for a window; may be exceeded by up to a block
_BOM = b"\xef\xbb\xbf"
# Formats by their first bytes, because names may be wrong.
_GZIP = b"\x1f\x8b"
_ZSTD = re.compile(rb"\x28\xb5\x2f\xfd|[\x50-\x5f]\x2a\x4d\x18")  # a frame, or a skippable frame
_NOT_LINES = {b"PK\x03\x04": "a zip", b"BZh": "a bzip2", b"\xfd7zXZ": "an xz", b"PAR1": "a Parquet"}


@dataclass(frozen=True, kw_only=True)
class Block:
    """Whole records, and the number of the line at which the first one begins, counted from 1."""

    data: bytes
    first_line: int

    def part(self, start: int, end: int) -> Self:
        return type(self)(data=self.data[start:end], first_line=self.line_at(start))

    def line_at(self, offset: int) -> int:
        return self.first_line + self.data.count(b"\n", 0, offset)


@dataclass(eq=False)
class LineRows(ABC):
    """A file of lines, compressed or not, as an InputFile. Each pass opens the file again.

    Reads only `columns`, and leaves out others. If the argument `bad` of `batches` is a NotedRows, `batches` notes
    these others in it, unless `only` says that the user chose the columns.
    """

    opened: Callable[[], BinaryIO]
    uri: str
    columns: ColumnTypes
    _: KW_ONLY
    only: bool = False
    first_byte: int = 0  # offset in an uncompressed file; the first record is on the next line
    block_bytes: int = BLOCK_BYTES
    most_record_bytes: int = MOST_RECORD_BYTES

    @property
    @abstractmethod
    def schema(self) -> pa.Schema: ...

    @abstractmethod
    def sample(self, sample_bytes: int) -> Any:
        """Read the values of the first rows, for `columns_of`. Raises ShardError if the file has no rows."""

    @staticmethod
    @abstractmethod
    def columns_of(samples: Sequence[Any]) -> ColumnTypes:
        """Find the columns of a run from the first rows of its files."""

    @abstractmethod
    def _last_end(self, piece: bytes) -> int:
        """Return the offset after the last whole record in a piece that begins with a record.

        0 if no record is whole.
        """

    @abstractmethod
    def _rows(self, block: Block, columns: Sequence[str]) -> tuple[pa.Table, BadRows, LeftOut]:
        """Read these columns of a block. Returns the rows (null if bad), the bad rows, and the fields left out."""

    @abstractmethod
    def _count(self, block: Block) -> int: ...

    def batches(
        self,
        columns: Sequence[str] | None = None,
        *,
        bad: BadRows | None = None,
        most_rows: int = STEP_ROWS,
        use_threads: bool = True,
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows. Uses no thread but the caller's, whatever `use_threads` says."""
        first_row = 0
        for block in self._blocks():
            table, found, left_out = self._rows(block, columns or self.schema.names)
            note_bad_rows(found, bad, first_row=first_row, uri=self.uri, left_out=left_out)
            yield from table.combine_chunks().to_batches(max_chunksize=most_rows)
            first_row += len(table)

    def count_rows(self, most: int | None = None) -> int:
        total = 0
        for block in self._blocks():
            total += self._count(block)
            if most is not None and total >= most:
                return most
        return total

    def _blocks(self) -> Iterator[Block]:
        """Yield the blocks of the file. Raises ShardError if it is truncated or damaged, or a record is too long."""
        with translated(f"Reading {self.uri}"), self.opened() as raw, io.BufferedReader(raw) as file:  # type: ignore[type-var]
            rest, line = b"", 1
            for piece in self._pieces(file):
                rest += piece
                if end := self._last_end(rest):
                    block = Block(data=rest[:end], first_line=line)
                    yield block
                    rest, line = rest[end:], block.line_at(end)
                elif len(rest) > self.most_record_bytes:
                    long = f"a row is longer than {self.most_record_bytes >> 20} MiB. Convert the file to Parquet."
                    raise self._error(line, long)
            if rest:
                yield Block(data=rest, first_line=line)

    def _first_blocks(self, sample_bytes: int) -> Iterator[Block]:
        left = sample_bytes
        for block in self._blocks():
            yield block
            left -= len(block.data)
            if left <= 0:
                return

    def _error(self, line: int, problem: str) -> ShardError:
        return ShardError(f"{self.uri}, line {line:,}: {problem}")

    def _pieces(self, file: "io.BufferedReader[Any]") -> Iterator[bytes]:
        source = self._decompressed(file)
        if self.first_byte and source is file:
            file.seek(self.first_byte)
            file.readline()
        first = self._next_piece(source)
        if first:
            yield first.removeprefix(_BOM)
        while first and (piece := self._next_piece(source)):
            yield piece

    def _decompressed(self, file: "io.BufferedReader[Any]") -> BinaryIO:
        start = file.peek()
        for beginning, kind in _NOT_LINES.items():
            if start.startswith(beginning):
                raise ShardError(
                    f"{self.uri} is {kind} file, whatever its name says. Unpack it, or give it its own ending."
                )
        if not start and self.uri.lower().endswith((".gz", ".zst")):  # a compressor always writes some bytes
            raise ShardError(f"Reading {self.uri}: the file is empty, so it is not a compressed file.")
        if start.startswith(_GZIP):
            return gzip.GzipFile(fileobj=file)  # type: ignore[return-value]
        return pa.CompressedInputStream(pa.PythonFile(file, mode="r"), "zstd") if _ZSTD.match(start) else file

    def _next_piece(self, source: BinaryIO) -> bytes:
        parts: list[bytes] = []
        left = self.block_bytes
        while left and (part := self._read(source, left)):  # one read may return less
            parts.append(part)
            left -= len(part)
        return b"".join(parts)

    def _read(self, source: BinaryIO, count: int) -> bytes:
        try:
            return source.read(count)
        except (EOFError, zlib.error, OSError) as error:
            is_of_zstd = isinstance(source, pa.CompressedInputStream) and type(error) is OSError and error.errno is None
            if isinstance(error, OSError) and not isinstance(error, gzip.BadGzipFile) and not is_of_zstd:
                raise
            raise ShardError(f"Reading {self.uri}: not a readable compressed file ({error}).{_hint(error)}") from error


def is_utf8(data: bytes) -> bool:
    """Return whether a block is valid UTF-8, which pyarrow's readers do not check."""
    if data.isascii():
        return True
    try:
        pa.array([data], pa.large_binary()).cast(pa.large_string())
    except pa.ArrowInvalid:
        return False
    return True


def _hint(error: Exception) -> str:
    if "too much memory" not in str(error):
        return " Replace it, then repeat the command or run `producer retry`."
    return " It was compressed with zstd --long. Compress it again without: zstd -dc --long=31 OLD | zstd -o NEW"
