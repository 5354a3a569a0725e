"""File contents on disk, each named by its sha256. Does not know which repositories refer to a blob: see `repos.py`."""

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path

CHUNK_BYTES = 1 << 20


@dataclass(frozen=True, kw_only=True)
class Blob:
    sha256: str
    size: int


class BlobStore:
    """A store of blobs. A blob never changes after it is written, so readers need no lock."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._folder.mkdir()
        self._serial = count()

    def write(self, chunks: Iterable[bytes]) -> Blob:
        """Store the chunks as one blob, atomically. Its name is the sha256 of the written bytes."""
        digest, size = hashlib.sha256(), 0
        incoming = self._folder / f"incoming-{next(self._serial)}"
        try:
            with incoming.open("wb") as file:
                for chunk in chunks:
                    digest.update(chunk)
                    size += len(chunk)
                    file.write(chunk)
            incoming.replace(self.path(digest.hexdigest()))
        finally:
            incoming.unlink(missing_ok=True)
        return Blob(sha256=digest.hexdigest(), size=size)

    def path(self, sha256: str) -> Path:
        return self._folder / sha256

    def read(self, sha256: str) -> bytes:
        return self.path(sha256).read_bytes()

    def size(self, sha256: str) -> int:
        return self.path(sha256).stat().st_size


def chunks_of(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            yield chunk
