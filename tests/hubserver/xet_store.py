"""The xet storage of the Hub: xorbs on disk, and for each file the chunks that it consists of. Knows no HTTP.

A file uploaded by xet is also stored as a plain blob, for downloads over HTTP. A blob uploaded in another way is split
into xorbs when a client first requests it over xet.
"""

import hashlib
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import count, islice
from pathlib import Path

from hubserver.blobs import Blob, BlobStore
from hubserver.errors import HubError, bad_request
from hubserver.repos import File
from hubserver.xorbs import Chunk, ShardFile, Term, index_xorb, pack, read_shard, unpack_chunks

XET_CHUNK_BYTES = 64 << 10
CHUNKS_PER_XORB = 256  # 16 MiB in all, which are in memory at once


@dataclass(frozen=True, kw_only=True)
class Piece:
    """Consecutive whole chunks of one xorb."""

    xorb: str
    first: int
    end: int
    size: int  # unpacked
    xorb_bytes: range


@dataclass(frozen=True, kw_only=True)
class Reconstruction:
    offset: int  # of the first requested byte, in the first piece
    pieces: tuple[Piece, ...]  # in the order of the file; a file may contain a chunk many times
    fetches: tuple[Piece, ...]  # what to download. They cover all pieces and do not overlap: hf_xet panics on overlaps.


class XetStore:
    def __init__(self, folder: Path, blobs: BlobStore) -> None:
        self._folder = folder
        self._folder.mkdir()
        self._blobs = blobs
        self._xorbs: dict[str, list[Chunk]] = {}
        self._files: dict[str, tuple[Term, ...]] = {}  # by xet hash
        self._hashes: dict[str, str] = {}  # xet hash by sha256
        self._lock = threading.Lock()
        self._serial = count()

    def hash_of(self, file: File) -> str:
        """The xet hash or, for a blob that was not uploaded by xet, the sha256. Clients cannot tell the difference."""
        return self._hashes.get(file.sha256, file.sha256)

    def xorb_path(self, xorb: str) -> Path:
        return self._folder / xorb

    def add_xorb(self, xorb: str, content: Iterable[bytes]) -> None:
        incoming = self._folder / f"incoming-{next(self._serial)}"
        try:
            with incoming.open("wb") as file:
                file.writelines(content)
            chunks = index_xorb(incoming)
            incoming.replace(self.xorb_path(xorb))
            self._xorbs[xorb] = chunks
        finally:
            incoming.unlink(missing_ok=True)

    def add_shard(self, data: bytes) -> list[Blob]:
        """Store the files that the shard describes as blobs. Each is checked against its sha256."""
        return [self._add_file(file) for file in read_shard(data)]

    def size(self, xet_hash: str) -> int:
        return sum(chunk.size for term in self._terms(xet_hash) for chunk in self._chunks(term))

    def reconstruction(self, xet_hash: str, wanted: range) -> Reconstruction:
        """The chunks that contain the wanted bytes. The first and the last may contain other bytes too."""
        position, offset, terms = 0, 0, []
        for term in self._terms(xet_hash):
            inside = []
            for index, chunk in enumerate(self._chunks(term), term.first):
                if position <= wanted.start < position + chunk.size:
                    offset = wanted.start - position
                if position < wanted.stop and wanted.start < position + chunk.size:
                    inside.append(index)
                position += chunk.size
            if inside:
                terms.append(Term(xorb=term.xorb, first=inside[0], end=inside[-1] + 1))
        fetches = tuple(self._piece(term) for term in merged(terms))
        return Reconstruction(offset=offset, pieces=tuple(self._piece(term) for term in terms), fetches=fetches)

    def _piece(self, term: Term) -> Piece:
        chunks = self._chunks(term)
        return Piece(
            xorb=term.xorb,
            first=term.first,
            end=term.end,
            size=sum(chunk.size for chunk in chunks),
            xorb_bytes=range(chunks[0].start, chunks[-1].end),
        )

    def _add_file(self, file: ShardFile) -> Blob:
        blob = self._blobs.write(self._content(file.terms))
        if file.sha256 not in (None, blob.sha256):
            raise bad_request(f"The content's sha256 is {blob.sha256}; the shard says {file.sha256}")
        self._files[file.xet_hash] = file.terms
        self._hashes[blob.sha256] = file.xet_hash
        return blob

    def _content(self, terms: Iterable[Term]) -> Iterator[bytes]:
        for term in terms:
            yield from unpack_chunks(self.xorb_path(term.xorb), self._chunks(term))

    def _chunks(self, term: Term) -> list[Chunk]:
        """The chunks of a term. A client with the cache of another server names unknown xorbs: a 400 ends its retries."""
        if len(self._xorbs.get(term.xorb, [])) < term.end:
            raise bad_request(f"Unknown xorb or chunk: {term}")
        return self._xorbs[term.xorb][term.first : term.end]

    def _terms(self, xet_hash: str) -> tuple[Term, ...]:
        with self._lock:
            if xet_hash not in self._files:
                self._files[xet_hash] = tuple(self._split(xet_hash))
        return self._files[xet_hash]

    def _split(self, sha256: str) -> Iterator[Term]:
        path = self._blobs.path(sha256)
        if not path.exists():
            raise HubError(404, f"Unknown file: {sha256}")
        with path.open("rb") as file:
            chunks = iter(lambda: file.read(XET_CHUNK_BYTES), b"")
            for number in count():
                pieces = list(islice(chunks, CHUNKS_PER_XORB))
                if not pieces:
                    return
                xorb = hashlib.sha256(f"{sha256} {number}".encode()).hexdigest()
                self.add_xorb(xorb, pack(pieces))
                yield Term(xorb=xorb, first=0, end=len(pieces))


def merged(terms: Iterable[Term]) -> list[Term]:
    """The same chunks, with overlapping and adjacent runs of a xorb merged into one."""
    runs: list[Term] = []
    for term in sorted(terms, key=lambda term: (term.xorb, term.first)):
        if runs and runs[-1].xorb == term.xorb and term.first <= runs[-1].end:
            last = runs.pop()
            term = Term(xorb=term.xorb, first=last.first, end=max(last.end, term.end))
        runs.append(term)
    return runs
