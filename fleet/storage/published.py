"""Read what a published dataset says about itself: the manifest, with the spec of its run. Needs no ledger."""

from contextlib import suppress
from dataclasses import dataclass

import fsspec
from fsspec.core import url_to_fs

from fleet.errors import ShardError, UsageError
from fleet.receipt import Receipt
from fleet.spec import RunSpec
from fleet.storage.errors import translated
from fleet.storage.manifest import read_manifest
from fleet.storage.output import MANIFEST_PATH


@dataclass(frozen=True, kw_only=True)
class Published:
    """The manifest of an output, read back. `spec` is as far as it is disclosed."""

    uri: str
    run_id: str
    digest: str  # over the path and sha256 of every file
    spec: RunSpec
    receipts: tuple[Receipt, ...]
    left_out: tuple[str, ...]  # failed shards that the published run does not contain
    shards: int  # of the run, also failed ones


def published_at(uri: str, content: bytes | None) -> Published | None:
    """What the manifest of the output at `uri` says. None if it is damaged or shardsift did not write it."""
    manifest = read_manifest(content)
    if manifest is None:
        return None
    return Published(
        uri=uri,
        run_id=manifest.run_id,
        digest=manifest.digest,
        spec=manifest.spec,
        receipts=manifest.receipts,
        left_out=manifest.left_out,
        shards=manifest.shards,
    )


def manifest_at(uri: str) -> bytes | None:
    """The manifest of the output at a folder, bucket or `hf://datasets/…` URI, unread; None if there is none.

    Raises UsageError if the place cannot be read, TransientError for the network.
    """
    filesystem, root = open_place(uri)
    return content_of(filesystem, f"{root}/{MANIFEST_PATH}")


def open_place(uri: str) -> tuple[fsspec.AbstractFileSystem, str]:
    """A URI's file system, without what it remembers of earlier listings, and the path there. Raises UsageError."""
    try:
        filesystem, root = url_to_fs(uri)
    except (ImportError, ValueError) as error:
        raise UsageError(f"{uri} cannot be read: {error}.") from error
    filesystem.invalidate_cache()
    return filesystem, root.rstrip("/")


def content_of(filesystem: fsspec.AbstractFileSystem, path: str) -> bytes | None:
    """The content of a file; None if it does not exist. Raises UsageError if it cannot be read."""
    try:
        with translated(f"Reading {path}"), suppress(FileNotFoundError):
            return bytes(filesystem.cat_file(path))
    except ShardError as error:
        raise UsageError(str(error)) from error
    return None
