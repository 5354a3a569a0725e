"""Read and write files below one root, in a folder, a bucket or anything that fsspec supports. Knows nothing of runs.

On a local disk, written files survive a power loss: file and folder are synced before the call returns.
"""

import errno
import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from copy import copy
from io import BytesIO
from pathlib import Path
from typing import BinaryIO, cast

import fsspec
from fsspec.implementations.local import LocalFileSystem

from shardsift.fleet.errors import TransientError, UsageError
from shardsift.fleet.run.receipt import OutputFile
from shardsift.fleet.storage.hub_files import BucketFiles, filesystem_of
from shardsift.fleet.storage.inspection import Problem, StoredFile, problem_of

READERS = 16  # a bucket answers in tens of milliseconds, and a run has thousands of files
_LISTINGS = 10
_LEVELS = 3  # depth of a walk: the folder itself and two levels below it
_BUCKETS = {"s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "oss", "obs", "hf"}


class Files:
    """The files below a root. Paths are relative to it. Methods raise fsspec's errors, such as FileNotFoundError."""

    def __init__(self, uri: str) -> None:
        self._fs: fsspec.AbstractFileSystem
        try:
            self._fs, self.root = filesystem_of(uri)
        except (ImportError, ValueError) as error:  # a missing library or an unknown protocol
            raise UsageError(f"{uri} cannot be used: {error}.") from error
        self._fs.invalidate_cache()  # of listings, because fsspec reuses file systems

    def create_bucket(self, *, public: bool) -> None:
        """Create the bucket if it is on the Hub and does not exist. Buckets elsewhere are created by their owners."""
        if isinstance(self._fs, BucketFiles):
            self._fs.create_bucket(self.root, public=public)

    def exists(self, path: str) -> bool:
        return bool(self._fs.exists(self._at(path)))

    def names_in(self, folder: str) -> set[str]:
        """List the names of the files and folders directly in a folder. Not cached.

        Does not glob, because the path may contain `*` or `[`.
        """
        self._fs.invalidate_cache()
        if not self._fs.isdir(self._at(folder)):
            return set()
        paths = self._fs.ls(self._at(folder), detail=False)
        return {str(path).rstrip("/").rpartition("/")[2] for path in paths}

    def neighbours(self, *names: str) -> Iterator["Files"]:
        """Yield all parent folders of the root, then the folders below it that directly contain one of `names`.

        Looks up to two levels below the root. `names` may name files or folders.
        """
        root = os.path.realpath(self.root) if isinstance(self._fs, LocalFileSystem) else self.root.rstrip("/")
        top = 2 if isinstance(self._fs, BucketFiles) else 0  # a Hub bucket is buckets/<user>/<name>
        while (root := root.rpartition("/")[0]) and root.count("/") >= top:
            yield self._elsewhere(root)
        if not self._fs.exists(self.root):
            return
        for folder, folders, files in self._fs.walk(self.root, maxdepth=_LEVELS):
            if folder.rstrip("/") != self.root.rstrip("/") and {*names} & {*folders, *files}:
                yield self._elsewhere(folder)

    def _elsewhere(self, root: str) -> "Files":
        files = copy(self)
        files.root = root
        return files

    def sizes(self, *folders: str) -> dict[str, int]:
        """Return the size in bytes of each file below these folders, by path. Not cached."""
        return {path: size for folder in folders for path, size in self._sizes_below(folder).items()}

    def _sizes_below(self, folder: str) -> dict[str, int]:
        """Return the size of each file below a folder.

        Tries again if another finalizer moves or removes a file meanwhile.
        """
        for _ in range(_LISTINGS):
            self._fs.invalidate_cache()
            with suppress(FileNotFoundError):
                found = self._fs.find(self._at(folder), detail=True)
                root = self.root.rstrip("/")
                return {name.removeprefix(root).lstrip("/"): info["size"] for name, info in found.items()}
        raise TransientError(f"{self._at(folder)} keeps changing while it is listed.")

    def open(self, path: str) -> BinaryIO:
        return cast(BinaryIO, self._fs.open(self._at(path), "rb"))

    def content(self, path: str) -> bytes | None:
        """Read a file. None if it does not exist, for example because it was removed after a listing."""
        try:
            return bytes(self._fs.cat_file(self._at(path)))
        except (FileNotFoundError, IsADirectoryError):
            return None

    def contents(self, paths: Sequence[str]) -> Iterator[tuple[str, bytes]]:
        """Yield the path and content of each of these files that exists. Several threads read."""
        with ThreadPoolExecutor(READERS) as readers:
            for path, content in zip(paths, readers.map(self.content, paths), strict=True):
                if content is not None:
                    yield path, content

    def problem(self, file: OutputFile, path: str, *, hashes: bool) -> Problem | None:
        """Return what is wrong with the copy of `file` at `path`.

        None if nothing is wrong. Compares sha256 only if `hashes`.
        """
        try:
            size = self._fs.size(self._at(path))
            is_read = hashes and size == file.size_bytes
            return problem_of(file, StoredFile(size_bytes=size, sha256=self.sha256(path) if is_read else None))
        except (FileNotFoundError, NotADirectoryError):
            return Problem.MISSING

    def sha256(self, path: str) -> str:
        with self.open(path) as file:
            return hashlib.file_digest(cast(BytesIO, file), "sha256").hexdigest()

    def put(self, file: Path, path: str) -> None:
        self._make_folder_of(path)
        self._fs.put_file(str(file), self._at(path))
        self._sync_file(path)

    def write(self, path: str, content: bytes, *, aside: str) -> None:
        """Write a file so that readers never see an incomplete one.

        Writes to the path `aside`, then moves the file into place. Writes directly to a bucket, because a bucket shows
        a file only when it is complete.
        """
        if is_bucket(self._fs):
            self._fs.pipe_file(self._at(path), content)
            return
        self._make_folder_of(aside)
        self._fs.pipe_file(self._at(aside), content)
        self._sync_file(aside)
        self.move(aside, path)
        self.sync_folders([path])

    def move(self, source: str, target: str) -> None:
        self._make_folder_of(target)
        path = self._at(target)
        if isinstance(self._fs, LocalFileSystem) and Path(path).is_dir():  # shutil.move moves into a folder
            raise IsADirectoryError(errno.EISDIR, "there is a folder in the place of a file; move it away", path)
        self._fs.mv(self._at(source), path)

    def remove(self, path: str) -> None:
        """Remove a file, or a folder with its content. Does nothing if it does not exist."""
        with suppress(FileNotFoundError):
            self._fs.rm(self._at(path), recursive=True)

    def sync_folders(self, paths: Iterable[str]) -> None:
        """Sync the folders of these files to disk, because the folders hold the files' names. Does nothing on remote storage."""
        if isinstance(self._fs, LocalFileSystem):
            for folder in {self._at(path).rpartition("/")[0] for path in paths}:
                _sync_folder(folder)

    def _sync_file(self, path: str) -> None:
        if isinstance(self._fs, LocalFileSystem):
            _sync(self._at(path))
            self.sync_folders([path])

    def _make_folder_of(self, path: str) -> None:
        folder = self._at(path).rpartition("/")[0]
        if isinstance(self._fs, LocalFileSystem):
            _make_folder(Path(folder))
        elif not is_bucket(self._fs):  # buckets have no folders; makedirs would create a bucket whose name is misspelt
            self._fs.makedirs(folder, exist_ok=True)

    def _at(self, path: str) -> str:
        return f"{self.root.rstrip('/')}/{path}"


def is_bucket(filesystem: fsspec.AbstractFileSystem) -> bool:
    protocols = (filesystem.protocol,) if isinstance(filesystem.protocol, str) else filesystem.protocol
    return bool(_BUCKETS & set(protocols))


def _make_folder(folder: Path) -> None:
    if folder.is_dir():
        return
    _make_folder(folder.parent)
    folder.mkdir(exist_ok=True)
    _sync_folder(folder.parent)


def _sync_folder(folder: str | Path) -> None:
    """Sync a folder to disk. Does nothing if the system cannot: for unreadable folders, and on some network mounts."""
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
    """Return `stored` with the sha256 of the files at `paths`. Leaves out files at `paths` that have vanished."""

    def read(path: str) -> StoredFile | None:
        try:
            return StoredFile(size_bytes=stored[path].size_bytes, sha256=files.sha256(path))
        except FileNotFoundError:
            return None

    here = [path for path in paths if path in stored]
    with ThreadPoolExecutor(READERS) as readers:
        hashed_files = dict(zip(here, readers.map(read, here), strict=True))
    return {path: file for path in stored if (file := hashed_files.get(path, stored[path]))}
