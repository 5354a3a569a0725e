"""Files below one root, in a folder or a bucket: anything that fsspec can write. Knows no runs.

What is written on a local disk survives a power loss: the file and its folder are synced before the call returns.
"""

import errno
import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from io import BytesIO
from pathlib import Path
from typing import BinaryIO, cast

import fsspec
from fsspec.core import url_to_fs
from fsspec.implementations.local import LocalFileSystem

from fleet.errors import TransientError, UsageError
from fleet.receipt import OutputFile
from fleet.storage.inspection import Problem, StoredFile, problem_of

READERS = 16  # a bucket answers in tens of milliseconds, and a run has thousands of files
_LISTINGS = 10
_BUCKETS = {"s3", "s3a", "gs", "gcs", "az", "abfs", "abfss"}  # have no folders; makedirs would make a misspelt bucket


class Files:
    """Paths are relative to the root. Methods raise fsspec's errors; what is not there is a FileNotFoundError."""

    def __init__(self, uri: str) -> None:
        self._fs: fsspec.AbstractFileSystem
        try:
            self._fs, self._root = url_to_fs(uri)
        except (ImportError, ValueError) as error:  # a library that is not installed, or an unknown protocol
            raise UsageError(f"The output {uri} cannot be used: {error}.") from error

    def exists(self, path: str) -> bool:
        return bool(self._fs.exists(self._at(path)))

    def names_in(self, folder: str) -> set[str]:
        """Names of the files and folders directly in a folder. By listing: the path may hold what a glob reads as a pattern."""
        if not self._fs.isdir(self._at(folder)):
            return set()
        paths = self._fs.ls(self._at(folder), detail=False)
        return {str(path).rstrip("/").rpartition("/")[2] for path in paths}

    def sizes(self, *folders: str) -> dict[str, int]:
        """Size by path of all files below these folders, as they are now."""
        return {path: size for folder in folders for path, size in self._sizes_below(folder).items()}

    def _sizes_below(self, folder: str) -> dict[str, int]:
        """Again if a file vanishes while it is listed: another finalizer moves or removes it."""
        for _ in range(_LISTINGS):
            self._fs.invalidate_cache()
            with suppress(FileNotFoundError):
                found = self._fs.find(self._at(folder), detail=True)
                return {self._path_of(name): info["size"] for name, info in found.items()}
        raise TransientError(f"{self._at(folder)} changes all the time while it is listed.")

    def files_in(self, folder: str) -> list[str]:
        """The paths of the files in a folder, not in those below it; none if it is not there."""
        self._fs.invalidate_cache()
        try:
            entries = self._fs.ls(self._at(folder), detail=True)
        except FileNotFoundError:
            return []
        return [self._path_of(entry["name"]) for entry in entries if entry["type"] == "file"]

    def open(self, path: str) -> BinaryIO:
        return cast(BinaryIO, self._fs.open(self._at(path), "rb"))

    def content(self, path: str) -> bytes | None:
        """None for a file that is not there, or was removed since it was listed."""
        try:
            return bytes(self._fs.cat_file(self._at(path)))
        except FileNotFoundError:
            return None

    def contents(self, paths: Sequence[str]) -> Iterator[tuple[str, bytes]]:
        """Path and content of those that are there, read by several threads."""
        with ThreadPoolExecutor(READERS) as readers:
            for path, content in zip(paths, readers.map(self.content, paths), strict=True):
                if content is not None:
                    yield path, content

    def problem(self, file: OutputFile, path: str, *, hashes: bool) -> Problem | None:
        """What is wrong with the copy at `path` of a receipt's file."""
        try:
            size = self._fs.size(self._at(path))
            is_looked_at = hashes and size == file.size_bytes
            return problem_of(file, StoredFile(size_bytes=size, sha256=self.sha256(path) if is_looked_at else None))
        except (FileNotFoundError, NotADirectoryError):
            return Problem.MISSING

    def sha256(self, path: str) -> str:
        with self.open(path) as file:
            return hashlib.file_digest(cast(BytesIO, file), "sha256").hexdigest()

    def put(self, file: Path, path: str) -> None:
        """Copy a local file here."""
        self._make_folder_of(path)
        self._fs.put_file(str(file), self._at(path))
        self._sync_file(path)

    def write(self, path: str, content: bytes, *, aside: str) -> None:
        """First to the path `aside`, then into place, so that no reader meets half a file."""
        self._make_folder_of(aside)
        self._fs.pipe_file(self._at(aside), content)
        self._sync_file(aside)
        self.move(aside, path)
        self.sync_folders([path])

    def move(self, source: str, target: str) -> None:
        self._make_folder_of(target)
        self._fs.mv(self._at(source), self._at(target))

    def remove(self, path: str) -> None:
        """A file, or a folder with all that is in it; what is not there is removed."""
        with suppress(FileNotFoundError):
            self._fs.rm(self._at(path), recursive=True)

    def sync_folders(self, paths: Iterable[str]) -> None:
        """Have the names of these files on the disk."""
        if isinstance(self._fs, LocalFileSystem):
            for folder in {self._at(path).rpartition("/")[0] for path in paths}:
                _sync_folder(folder)

    def _sync_file(self, path: str) -> None:
        """Have the content and the name of a file on the disk."""
        if isinstance(self._fs, LocalFileSystem):
            _sync(self._at(path))
            self.sync_folders([path])

    def _make_folder_of(self, path: str) -> None:
        folder = self._at(path).rpartition("/")[0]
        if isinstance(self._fs, LocalFileSystem):
            _make_folder(Path(folder))
            return
        protocols = (self._fs.protocol,) if isinstance(self._fs.protocol, str) else self._fs.protocol
        if not _BUCKETS & set(protocols):
            self._fs.makedirs(folder, exist_ok=True)

    def _at(self, path: str) -> str:
        return f"{self._root.rstrip('/')}/{path}"

    def _path_of(self, name: str) -> str:
        """The path below the root of what the file system lists."""
        return name.removeprefix(self._root.rstrip("/")).lstrip("/")


def _make_folder(folder: Path) -> None:
    """With the folders above it, and the names of new ones on the disk."""
    if folder.is_dir():
        return
    _make_folder(folder.parent)
    folder.mkdir(exist_ok=True)
    _sync_folder(folder.parent)


def _sync_folder(folder: str | Path) -> None:
    """As far as we may: a folder that we cannot list, or a network mount that syncs no folders, is left to the system."""
    try:
        _sync(folder)
    except OSError as error:
        if error.errno not in (errno.EACCES, errno.EPERM, errno.EINVAL, errno.ENOTSUP):
            raise


def _sync(path: str | Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def hashed(files: Files, stored: Mapping[str, StoredFile], paths: Iterable[str]) -> dict[str, StoredFile]:
    """`stored`, with the sha256 of those of the paths that are in it; one that vanished meanwhile is left out."""

    def look(path: str) -> StoredFile | None:
        try:
            return StoredFile(size_bytes=stored[path].size_bytes, sha256=files.sha256(path))
        except FileNotFoundError:
            return None

    here = [path for path in paths if path in stored]
    with ThreadPoolExecutor(READERS) as readers:
        looked_at = dict(zip(here, readers.map(look, here), strict=True))
    return {path: file for path in stored if (file := looked_at.get(path, stored[path]))}
