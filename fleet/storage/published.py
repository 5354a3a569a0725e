"""Read what a published dataset says about itself: the manifest, with the spec of its run. Needs no ledger."""

from contextlib import suppress
from dataclasses import dataclass

import fsspec
from fsspec.core import url_to_fs

from fleet.errors import ShardError, UsageError
from fleet.receipt import Receipt
from fleet.spec import RunSpec
from fleet.storage.errors import translated
from fleet.storage.manifest import left_out_shards, mark_of, receipts_listed, spec_of
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


def published_at(uri: str, manifest: bytes) -> Published | None:
    """What the manifest of the output at `uri` says. None if it is damaged or shardsift did not write it."""
    mark, spec = mark_of(manifest), spec_of(manifest)
    receipts = receipts_listed(manifest, mark.run_id) if mark else []
    if mark is None or spec is None or not receipts:
        return None
    return Published(
        uri=uri,
        run_id=mark.run_id,
        digest=mark.digest,
        spec=spec,
        receipts=tuple(receipts),
        left_out=left_out_shards(manifest),
    )


def read_manifest(uri: str) -> bytes | None:
    """The manifest of the output at a folder, bucket or `hf://datasets/…` URI; None if there is none.

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
