"""Identify the content of an input file, if possible without reading all of it.

A Hub file is identified by its LFS sha256, an object in a bucket by its ETag. Any other Parquet file is identified by
its size and a hash of its footer. The footer holds the offset, size and bounds of every column chunk, so it changes
when the file is rewritten, but not when only the modification time changes. JSON Lines and CSV files have no footer:
their sha256 is computed, which is much faster than scoring them.
"""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO

import fsspec
from huggingface_hub import HfApi, HfFileSystem
from huggingface_hub.hf_api import RepoFile
from huggingface_hub.hf_file_system import HfFileSystemResolvedRepositoryPath

from shardsift.fleet.errors import ShardError
from shardsift.fleet.inputs.formats import has_footer
from shardsift.fleet.run.spec import Shard
from shardsift.fleet.storage.errors import translated
from shardsift.fleet.storage.files import is_bucket
from shardsift.fleet.storage.hub_files import filesystem_of

_ETAGS = ("ETag", "md5Hash", "etag")  # of s3fs; of gcsfs, whose etag also changes with metadata; of adlfs and gcsfs
_MAGIC = b"PAR1"
_END_BYTES = 8  # footer length and magic bytes
_TAIL_BYTES = 64 << 10  # read first; most footers fit
_LINES_BYTES = 8 << 20  # block size for a file that is read whole


def identity_of(filesystem: fsspec.AbstractFileSystem, info: dict[str, Any]) -> str:
    """Return the identity of a file from its `info`.

    Reads the footer or the whole file if `info` does not identify it. Call it in a `translated` block, which converts
    the errors of reading.
    """
    if (lfs := info.get("lfs")) is not None:
        return f"sha256:{lfs.sha256}"
    if blob := info.get("blob_id"):
        return f"git:{blob}"
    if xet := info.get("xet_hash"):  # in a bucket on the Hub
        return f"xet:{xet}"
    if etag := _strong_etag(filesystem, info):
        return f"etag:{etag}"
    if not has_footer(str(info["name"])):
        with filesystem.open(info["name"], "rb", block_size=_LINES_BYTES) as file:
            return f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"  # equal to the Hub's
    with filesystem.open(info["name"], "rb", block_size=_TAIL_BYTES) as file:
        return _footer_identity(file)


def identity_now(uri: str) -> tuple[str, int]:
    """Return the current identity and size of a file. Does not use cached listings."""
    with translated(f"Looking at {uri}"):
        filesystem, path = filesystem_of(uri)
        info = _fresh_info(filesystem, path)
        return identity_of(filesystem, info), int(info["size"])


def are_of_other_bytes(one: str, other: str) -> bool:
    """Return whether two identities prove different contents. Identities of different kinds prove nothing."""
    return one != other and one.partition(":")[0] == other.partition(":")[0]


@contextmanager
def unchanged(shard: Shard) -> Iterator[None]:
    """Check before and after a block that the shard's file is the one that was enqueued. Raises ShardError if not.

    If the block itself raises a ShardError, the file is checked too, because the cause may be that it was replaced
    while it was read.
    """
    check_unchanged(shard)
    try:
        yield
    except ShardError:
        check_unchanged(shard)
        raise
    check_unchanged(shard)


def check_unchanged(shard: Shard) -> None:
    now, _ = identity_now(shard.uri)
    if now != shard.identity:
        raise ShardError(
            f"Shard {shard.name}: the input changed since it was enqueued ({shard.uri}). "
            "Restore the old file or keep the new one, then run `producer retry` to score the file that is there."
        )


def _fresh_info(filesystem: fsspec.AbstractFileSystem, path: str) -> dict[str, Any]:
    if isinstance(filesystem, HfFileSystem):
        resolved = filesystem.resolve_path(path)
        if isinstance(resolved, HfFileSystemResolvedRepositoryPath):
            return _hub_info(resolved)
    filesystem.invalidate_cache(path)
    return dict(filesystem.info(path))


def _hub_info(resolved: HfFileSystemResolvedRepositoryPath) -> dict[str, Any]:
    """Ask the Hub about this file only. The file system's own `info` would list the whole folder."""
    found = HfApi().get_paths_info(
        resolved.repo_id, resolved.path_in_repo, revision=resolved.revision, repo_type=resolved.repo_type
    )
    for file in found:
        if isinstance(file, RepoFile):
            return {"name": resolved.unresolve(), "size": file.size, "blob_id": file.blob_id, "lfs": file.lfs}
    raise FileNotFoundError(resolved.unresolve())


def _strong_etag(filesystem: fsspec.AbstractFileSystem, info: dict[str, Any]) -> str | None:
    """Return the ETag of an object in a bucket. None for web servers, whose ETag is often only a modification time."""
    if not is_bucket(filesystem):
        return None
    found = (str(info[key]).strip('"') for key in _ETAGS if info.get(key))
    return next((tag for tag in found if not tag.startswith("W/")), None)


def _footer_identity(file: BinaryIO) -> str:
    size = file.seek(0, 2)
    tail = _last_bytes(file, size, _TAIL_BYTES)
    footer_bytes = int.from_bytes(tail[-_END_BYTES:-4], "little") + _END_BYTES
    if tail[-4:] != _MAGIC or footer_bytes > size:
        return f"unreadable:{size}:{hashlib.sha256(tail).hexdigest()}"  # the shard fails, unless the file is repaired
    footer = tail[-footer_bytes:] if footer_bytes <= len(tail) else _last_bytes(file, size, footer_bytes)
    return f"parquet:{size}:{hashlib.sha256(footer).hexdigest()}"


def _last_bytes(file: BinaryIO, size: int, count: int) -> bytes:
    file.seek(max(0, size - count))
    return file.read()
