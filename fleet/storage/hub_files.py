"""Read files on the Hub through fsspec. An answer that is not the file's bytes, such as a proxy's page, is an error."""

from typing import Any

import fsspec
from fsspec.core import url_to_fs
from huggingface_hub import HfFileSystem
from huggingface_hub.hf_file_system import HfFileSystemFile


def filesystem_of(uri: str) -> tuple[fsspec.AbstractFileSystem, str]:
    """The file system of a URI and the path there, as fsspec has it. Raises what fsspec raises."""
    return (HubFiles(), HubFiles._strip_protocol(uri)) if uri.startswith("hf://") else url_to_fs(uri)


class HubFiles(HfFileSystem):
    def _open(  # type: ignore[override]
        self, path: str, mode: str = "rb", block_size: int | None = None, **options: Any
    ) -> HfFileSystemFile:
        return _WholeAnswers(self, path, mode=mode, block_size=block_size or self.block_size, **options)


class _WholeAnswers(HfFileSystemFile):
    """The client takes any answer with status 200 for the bytes that it asked for."""

    def _fetch_range(self, start: int, end: int) -> bytes:
        content: bytes = super()._fetch_range(start, end)
        if len(content) != min(end, self.size) - start:
            raise ConnectionError(f"an answer of {len(content):,} bytes is not the file's, but perhaps a proxy's")
        return content

    def read(self, length: int | None = -1) -> bytes:
        """Also of a whole file, which the client reads in another way."""
        return bytes(super().read(self.size - self.loc if length in (None, -1) else length))  # type: ignore[no-untyped-call]
