"""Contents on disk, each under its sha256. Knows no repository: which may point to a blob, `repos.py` says."""

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
    """Blobs are written once and never changed, so a reader needs no lock."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._folder.mkdir()
        self._serial = count()

    def write(self, chunks: Iterable[bytes]) -> Blob:
        """Store the chunks as one blob. It appears whole, under the hash of what was written, or not at all."""
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
