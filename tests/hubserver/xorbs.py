"""The byte formats of xet: xorbs contain chunks, and shards list the chunks of each file. No HTTP, no state.

See https://github.com/huggingface/xet-core/tree/main/spec
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa

CHUNK_HEADER = struct.Struct("<B3sB3s")  # version, stored bytes, compression, bytes
FOOTER_VERSION_BYTE = ord("X")  # the footer begins with "XETBLOB"; a chunk begins with its version, 0
UNCOMPRESSED, LZ4, GROUPED_LZ4 = 0, 1, 2

SHARD_HEADER_BYTES = 48
FILE_RECORD = struct.Struct("<32sII8x")  # hash, flags, number of terms
TERM_RECORD = struct.Struct("<32sIIII")  # xorb, flags, bytes, first chunk, end chunk
EXTRA_RECORD = struct.Struct("<32s16x")  # the hash of a range of chunks, or the sha256 of the file
HAS_VERIFICATION = 1 << 31  # an extra record follows for each term
HAS_METADATA = 1 << 30  # an extra record with the sha256 follows
END_OF_FILES = b"\xff" * 32


class Chunk(NamedTuple):
    """A chunk of a xorb, without its header."""

    stored: bytes
    compression: int
    size: int  # unpacked


@dataclass(frozen=True, kw_only=True)
class Term:
    """Consecutive chunks of a xorb that form a part of a file."""

    xorb: str
    first: int
    end: int


@dataclass(frozen=True, kw_only=True)
class ShardFile:
    xet_hash: str
    sha256: str | None
    terms: tuple[Term, ...]


def xet_hex(digest: bytes) -> str:
    """Return the text form of a xet hash: four little-endian 64-bit words. It differs from the hex of the bytes."""
    return "".join(f"{word:016x}" for word in struct.unpack("<4Q", digest))


def read_shard(data: bytes) -> Iterator[ShardFile]:
    position = SHARD_HEADER_BYTES

    def take(record: struct.Struct) -> tuple[Any, ...]:
        nonlocal position
        position += record.size
        return record.unpack_from(data, position - record.size)

    while True:
        digest, flags, count = take(FILE_RECORD)
        if digest == END_OF_FILES:
            return
        terms = []
        for _ in range(count):
            xorb, _, _, first, end = take(TERM_RECORD)
            terms.append(Term(xorb=xet_hex(xorb), first=first, end=end))
        if flags & HAS_VERIFICATION:
            position += EXTRA_RECORD.size * count
        sha256 = xet_hex(take(EXTRA_RECORD)[0]) if flags & HAS_METADATA else None
        yield ShardFile(xet_hash=xet_hex(digest), sha256=sha256, terms=tuple(terms))


def chunks_of_xorb(data: bytes) -> Iterator[Chunk]:
    start = 0
    while start < len(data):
        version, stored, compression, size = CHUNK_HEADER.unpack_from(data, start)
        if version == FOOTER_VERSION_BYTE:
            return
        start += CHUNK_HEADER.size
        end = start + int.from_bytes(stored, "little")
        yield Chunk(data[start:end], compression, int.from_bytes(size, "little"))
        start = end


def unpack(chunk: Chunk) -> bytes:
    if chunk.compression == UNCOMPRESSED:
        return chunk.stored
    data: bytes = pa.Codec("lz4").decompress(chunk.stored, decompressed_size=chunk.size, asbytes=True)
    return ungroup(data) if chunk.compression == GROUPED_LZ4 else data


def ungroup(data: bytes) -> bytes:
    """Restore the order of bytes that were grouped by position modulo 4. Grouped four-byte numbers compress better."""
    ungrouped, start = bytearray(len(data)), 0
    for offset in range(4):
        count = len(range(offset, len(data), 4))
        ungrouped[offset::4] = data[start : start + count]
        start += count
    return bytes(ungrouped)
