"""Limit how many rows of a Parquet file are decoded at once, by the sizes in its page headers.

The footer has only encoded sizes: with a dictionary or shared prefixes, a kilobyte can decode to gigabytes.
"""

from collections import deque
from collections.abc import Collection, Iterator
from contextlib import suppress
from functools import cached_property
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

# Most bytes to decode at once, unless one row has more. Arrow needs up to three times as much while it decodes.
_MOST_BYTES = 32 << 20
_MOST_UNKNOWN_ROWS = 16  # rows decoded at once if large lists make the size of a row unknown
_WIDTHS = {"BOOLEAN": 1, "INT32": 4, "INT64": 8, "INT96": 8, "FLOAT": 4, "DOUBLE": 8}  # other types have any length
_OF_A_LIST = 5  # bytes of an offset and a validity flag


class RowsAhead:
    """The rows of a row group that are not decoded yet. Estimates the memory that the next rows take when decoded.

    Counts only `columns`; empty means all.
    """

    def __init__(self, file: BinaryIO, metadata: pq.FileMetaData, group: int, columns: Collection[str]) -> None:
        found = metadata.row_group(group)
        self.rows = int(found.num_rows)
        self._row_bytes = self._bytes = 0  # fixed bytes of each row, and of all lists together
        self._texts: list[_Pages] = []
        lists = [0]
        slots = [count for field in metadata.schema.to_arrow_schema() for count in _slots(field.type)]
        for index in range(found.num_columns):
            chunk, leaf = found.column(index), metadata.schema.column(index)
            if columns and not any(f"{leaf.path}.".startswith(f"{name}.") for name in columns):
                continue
            width = _WIDTHS.get(leaf.physical_type, leaf.length)
            encoded = int(chunk.total_uncompressed_size)
            if leaf.max_repetition_level:
                of_nulls = _nulls(chunk) * (slots[index] - 1) * (width + _OF_A_LIST) if slots[index] > 1 else 0
                of_values = chunk.num_values * width if width else _Pages(file, chunk).bytes_of_all
                lists.append(of_values + chunk.num_values * _OF_A_LIST + of_nulls)
            elif width or encoded * found.num_columns * self.rows <= _MOST_BYTES // 4:
                self._row_bytes += width or encoded
            else:
                self._texts.append(_Pages(file, chunk))
        self._is_known = sum(lists) <= _MOST_BYTES // 2
        self._bytes = sum(lists) if self._is_known else 0
        self._tried = 1

    def step(self, most_rows: int) -> int:
        rows = min(most_rows, self.rows, self.rows if self._is_known else self._tried)
        while self._bytes_of(rows) > _MOST_BYTES and rows > 1:
            rows //= 2
        return rows

    def _bytes_of(self, rows: int) -> int:
        return self._bytes + rows * self._row_bytes + sum(pages.bytes_of(rows) for pages in self._texts)

    def decoded(self, batch: pa.RecordBatch) -> None:
        rows = len(batch)
        self.rows -= rows
        for pages in self._texts:
            pages.skip(rows)
        if not self._is_known:
            self._tried = max(1, min(2 * rows, _MOST_UNKNOWN_ROWS, _MOST_BYTES * rows // max(1, batch.nbytes)))


def _slots(kind: pa.DataType) -> list[int]:
    """Return, for each Parquet column that stores this type, how many values Arrow keeps for a null.

    The number is 1, but in a list of fixed size it is the size of the list.
    """
    kind = kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind
    inner = [count for number in range(kind.num_fields) for count in _slots(kind.field(number).type)]
    return [count * (kind.list_size if pa.types.is_fixed_size_list(kind) else 1) for count in inner or [1]]


def _nulls(chunk: pq.ColumnChunkMetaData) -> int:
    found = chunk.statistics
    return int(found.null_count if found is not None and found.has_null_count else chunk.num_values)


# The format is at https://github.com/apache/parquet-format

_DICTIONARY_CODED, _SHARED_BEGINNINGS = {2, 8}, 7  # encodings
_HEADER_BYTES = (1 << 8, 1 << 16, 1 << 24)  # tried one after the other, because statistics may have any length
_SIZE, _STORED_SIZE, _DATA, _DICTIONARY, _DATA_2 = 2, 3, 5, 7, 8  # fields of a header


class _Pages:
    def __init__(self, file: BinaryIO, chunk: pq.ColumnChunkMetaData) -> None:
        self._file, self._chunk = file, chunk
        self._dictionary = (0, 0, 0)  # its offset, its size in the file, and its decompressed size
        self._ahead: deque[tuple[int, int, int]] = deque()  # number of values, size, encoding of each page read
        self._rest = self._headers()
        self._coded = self._entries = 0
        while (page := next(self._rest, None)) and page[2] in _DICTIONARY_CODED:
            self._ahead.append(page)
            self._coded += page[0]
        self._ahead += [page] if page else []

    @property
    def bytes_of_all(self) -> int:
        encoded = int(self._chunk.total_uncompressed_size)
        if "DELTA_BYTE_ARRAY" in self._chunk.encodings:
            return int(self._chunk.num_values) * encoded
        return encoded + self._repeated(self._coded)

    def bytes_of(self, rows: int) -> int:
        """Return an upper bound of the bytes that the next rows take when decoded.

        The first page is decompressed already, so only the share of these rows counts. Later pages count whole, because
        a page is always decompressed whole.
        """
        found = coded = index = 0
        while rows:
            if index == len(self._ahead):
                self._ahead.append(
                    next(self._rest, (rows, int(self._chunk.total_uncompressed_size), _SHARED_BEGINNINGS))
                )
            values, size, encoding = self._ahead[index]
            here = min(rows, values)
            if encoding in _DICTIONARY_CODED:
                coded += here
            elif encoding == _SHARED_BEGINNINGS:
                found += here * size
            else:
                found += size if index else size * here // values
            rows -= here
            index += 1
        return found + self._repeated(coded)

    def _repeated(self, values: int) -> int:
        """Return an upper bound of the decoded bytes of `values` dictionary-coded values. Leaves the dictionary out."""
        repeated = min(values, self._coded - self._entries)
        whole = repeated * self._dictionary[2]
        return whole if whole <= _MOST_BYTES // 8 else repeated * self._longest

    @cached_property
    def _longest(self) -> int:
        at, stored, size = self._dictionary
        with suppress(OSError, ValueError, NotImplementedError):
            content = _read(self._file, at, stored)
            if self._chunk.compression != "UNCOMPRESSED":
                content = pa.decompress(content, size, self._chunk.compression.lower(), asbytes=True)
            lengths, index = [0], 0
            while index < len(content):
                lengths.append(int.from_bytes(content[index : index + 4], "little"))
                index += 4 + lengths[-1]
            return max(lengths)
        return size

    def skip(self, rows: int) -> None:
        while rows:
            values, size, encoding = self._ahead.popleft()
            if values > rows:
                self._ahead.appendleft((values - rows, size, encoding))
            rows -= min(rows, values)

    def _headers(self) -> Iterator[tuple[int, int, int]]:
        """Yield the number of values, size and encoding of each data page. Ends at a page that cannot be read."""
        chunk = self._chunk
        with suppress(OSError, LookupError, TypeError, ValueError, RecursionError):  # Arrow will report the error
            at = min(offset for offset in (chunk.dictionary_page_offset, chunk.data_page_offset) if offset)
            end = at + chunk.total_compressed_size
            while at < end:
                header, length = self._header(at)
                at += length
                if entries := header.get(_DICTIONARY):
                    self._dictionary, self._entries = (at, header[_STORED_SIZE], header[_SIZE]), entries[1]
                elif data := header.get(_DATA):
                    yield max(0, data[1]), header[_SIZE], data[2]
                elif data := header.get(_DATA_2):
                    yield max(0, data[1]), header[_SIZE], data[4]
                at += max(0, header[_STORED_SIZE])

    def _header(self, at: int) -> tuple[dict[int, Any], int]:
        for most in _HEADER_BYTES[:-1]:
            with suppress(IndexError):
                return _struct(_read(self._file, at, most), 0)
        return _struct(_read(self._file, at, _HEADER_BYTES[-1]), 0)


def _read(file: BinaryIO, at: int, size: int) -> bytes:
    file.seek(at)
    return file.read(size)


# The part of Thrift's compact protocol that page headers use.

_TRUE, _FALSE, _BYTES, _STRUCT = 1, 2, 8, 12  # types of a field; others in a header are integers


def _struct(content: bytes, at: int) -> tuple[dict[int, Any], int]:
    """Read a Thrift struct. Returns its values by field number, and the position after it.

    Raises IndexError if the struct is cut off.
    """
    fields: dict[int, Any] = {}
    number = 0
    while head := content[at]:
        at += 1
        if head >> 4:
            number += head >> 4
        else:
            number, at = _integer(content, at)
        kind = head & 15
        if kind == _STRUCT:
            fields[number], at = _struct(content, at)
        elif kind == _BYTES:
            length, at = _varint(content, at)
            at += length
        elif kind not in (_TRUE, _FALSE):
            fields[number], at = _integer(content, at)
    return fields, at + 1


def _varint(content: bytes, at: int) -> tuple[int, int]:
    found = shift = 0
    while content[at] & 128:
        found |= (content[at] & 127) << shift
        at, shift = at + 1, shift + 7
    return found | content[at] << shift, at + 1


def _integer(content: bytes, at: int) -> tuple[int, int]:
    found, at = _varint(content, at)
    return found >> 1 ^ -(found & 1), at
