"""File contents in memory, each named by its sha256. Does not know which repositories refer to a blob: see `repos.py`."""

import hashlib


class BlobStore:
    def __init__(self) -> None:
        self._contents: dict[str, bytes] = {}

    def write(self, content: bytes) -> str:
        """Store the content and return its sha256."""
        sha256 = hashlib.sha256(content).hexdigest()
        self._contents[sha256] = content
        return sha256

    def read(self, sha256: str) -> bytes:
        return self._contents[sha256]
