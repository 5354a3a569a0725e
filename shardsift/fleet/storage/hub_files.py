"""Read and write files on the Hub through fsspec, in repositories and buckets.

An answer that is not the file's content, such as a proxy's page, raises an error.
"""

import re
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, cast
from urllib.parse import quote

import fsspec
from fsspec.core import url_to_fs
from fsspec.dircache import DirCache
from fsspec.implementations.local import LocalFileSystem
from huggingface_hub import HfApi, HfFileSystem
from huggingface_hub.hf_api import RepoFile, RepoFolder
from huggingface_hub.hf_file_system import HfFileSystemFile, HfFileSystemResolvedBucketPath
from huggingface_hub.utils import disable_progress_bars  # type: ignore[attr-defined]

from shardsift.fleet.errors import TransientError
from shardsift.fleet.process.wording import is_url, local_path
from shardsift.fleet.storage.hub_access import UNUSABLE

IN_BUCKET = re.compile(r"hf://buckets/[^/@]+/[^/@]+(/[^@]*)?")  # on the Hub, where paths in buckets have no @


def filesystem_of(uri: str) -> tuple[fsspec.AbstractFileSystem, str]:
    """Return the file system of a URI, and the path in it, like fsspec's `url_to_fs`. Raises fsspec's errors."""
    if not is_url(uri):
        return LocalFileSystem(), str(local_path(uri))
    if not uri.startswith("hf://"):
        return cast(tuple[fsspec.AbstractFileSystem, str], url_to_fs(uri))
    files = BucketFiles() if IN_BUCKET.fullmatch(uri) else HubFiles()
    return files, files._strip_protocol(uri)


class HubApi(HfApi):
    def list_repo_tree(
        self, repo_id: str, path_in_repo: str | None = None, **options: Any
    ) -> Iterator[RepoFile | RepoFolder]:
        """List a folder. Raises TransientError for an empty listing if the repository has files.

        The client reads the answer `{}` as an empty folder, but Git has no empty folders.
        """
        is_empty = True
        for entry in super().list_repo_tree(repo_id, path_in_repo, **options):
            is_empty = False
            yield entry
        kind, revision = options["repo_type"], options.get("revision")
        if is_empty and getattr(self.repo_info(repo_id, repo_type=kind, revision=revision), "siblings", None):
            raise TransientError(f"Listing hf://{kind}s/{repo_id}/{path_in_repo or ''}: {UNUSABLE}.")


class HubFiles(HfFileSystem):
    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._api = HubApi()

    def _open(  # type: ignore[override]
        self, path: str, mode: str = "rb", block_size: int | None = None, **options: Any
    ) -> HfFileSystemFile:
        return _WholeAnswers(self, path, mode=mode, block_size=block_size or self.block_size, **options)


class BucketFiles(HubFiles):
    """The files of a bucket on the Hub. Nothing is cached, because other processes change the bucket.

    Methods make few requests and raise the Hub's errors. The client's methods treat any error as a missing file.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.dircache = DirCache(use_listings_cache=False)
        disable_progress_bars()  # the client draws one for each small file that it uploads

    def create_bucket(self, path: str, *, public: bool) -> None:
        """Create the bucket of a path if it does not exist. An existing one keeps its visibility."""
        self._api.create_bucket("/".join(path.split("/")[1:3]), private=not public, exist_ok=True)

    def info(self, path: str, **_: Any) -> dict[str, Any]:  # type: ignore[override]
        resolved = self._resolved(path)
        if resolved.path:
            for file in self._api.get_bucket_paths_info(resolved.bucket_id, [resolved.path]):
                return {"name": resolved.unresolve(), "size": file.size, "type": "file", "xet_hash": file.xet_hash}
            entries = self._api.list_bucket_tree(resolved.bucket_id, resolved.path)
            if not any(entry.path.startswith(f"{resolved.path}/") for entry in entries):
                raise FileNotFoundError(path)
        return {"name": resolved.unresolve(), "size": 0, "type": "directory"}

    def exists(self, path: str, **_: Any) -> bool:
        with suppress(FileNotFoundError):
            return bool(self.info(path))
        return False

    def isdir(self, path: str) -> bool:
        with suppress(FileNotFoundError):
            return bool(self.info(path)["type"] == "directory")
        return False

    def url(self, path: str) -> str:
        resolved = self._resolved(path)
        return f"{self.endpoint}/buckets/{resolved.bucket_id}/resolve/{quote(resolved.path)}"

    def put_file(self, lpath: str | bytes, rpath: str, **_: Any) -> None:
        """Upload a file or bytes, without the temporary file that the client would write."""
        resolved = self._resolved(rpath)
        self._api.batch_bucket_files(resolved.bucket_id, add=[(lpath, resolved.path)])

    def pipe_file(self, path: str, value: bytes, **_: Any) -> None:
        self.put_file(value, path)

    def mv(self, path1: str, path2: str, **_: Any) -> None:
        """Copy by hash, without sending bytes. Then remove the original in a second request.

        In one batch, the removal could succeed although the copy failed, and the file would be lost.
        """
        self.cp_file(path1, path2)
        self._rm(path1)

    def rm(self, path: str, **_: Any) -> None:  # type: ignore[override]
        resolved = self._resolved(path)
        entries = self._api.list_bucket_tree(resolved.bucket_id, resolved.path, recursive=True)  # prefix matches
        paths = [entry.path for entry in entries if f"{entry.path}/".startswith(f"{resolved.path}/")]
        if not paths:
            raise FileNotFoundError(path)
        self._api.batch_bucket_files(resolved.bucket_id, delete=paths)

    def _resolved(self, path: str) -> HfFileSystemResolvedBucketPath:
        return cast(HfFileSystemResolvedBucketPath, self.resolve_path(path))


class _WholeAnswers(HfFileSystemFile):
    """A file that checks the length of each answer.

    The client accepts any answer with status 200 as the requested bytes.
    """

    def _fetch_range(self, start: int, end: int) -> bytes:
        content: bytes = super()._fetch_range(start, end)
        if len(content) != min(end, self.size) - start:
            raise ConnectionError(f"an answer of {len(content):,} bytes is not the file's, but perhaps a proxy's")
        return content

    def read(self, length: int | None = -1) -> bytes:
        """Read bytes. Unlike the client, uses `_fetch_range` for the whole file too, so that the length is checked."""
        return bytes(super().read(self.size - self.loc if length in (None, -1) else length))  # type: ignore[no-untyped-call]
