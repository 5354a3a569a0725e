"""Read what a published dataset says about itself: the manifest, with the spec of its run."""

from contextlib import suppress
from dataclasses import dataclass

import fsspec
from fsspec.core import url_to_fs

from fleet.errors import ShardError, UsageError
from fleet.receipt import Receipt
from fleet.spec import RunSpec
from fleet.storage.errors import translated
from fleet.storage.folder import WORKPLACE
from fleet.storage.inspection import DATA_FOLDERS, Finding, Problem
from fleet.storage.manifest import left_out_shards, mark_of, receipts_listed, spec_of
from fleet.storage.output import CARD_PATH, MANIFEST_PATH
from producer.verify.report import Fault

_CARD_TAG = b"tags:\n- shardsift"


@dataclass(frozen=True, kw_only=True)
class Published:
    """The manifest of an output, read back."""

    uri: str
    run_id: str
    spec: RunSpec
    receipts: tuple[Receipt, ...]
    left_out: tuple[str, ...]  # failed shards that the published run does not contain


def read_published(uri: str, *, published_run: str | None = None) -> Published | Fault:
    """Read the manifest. Returns a Fault if it is unusable although a run, or `published_run`, should be there.

    Raises UsageError if there is nothing of shardsift, TransientError for the network.
    """
    filesystem, root = _place(uri)
    manifest = _content(filesystem, f"{root}/{MANIFEST_PATH}")
    mark, spec = (mark_of(manifest), spec_of(manifest)) if manifest is not None else (None, None)
    receipts = receipts_listed(manifest, mark.run_id) if manifest is not None and mark else []
    if manifest is None or mark is None or spec is None or not receipts:
        if not (published_run or _has_remains(filesystem, root)):
            raise UsageError(_nothing_there(uri, manifest))
        problem = Problem.MISSING if manifest is None else Problem.UNREADABLE
        return Fault(path=MANIFEST_PATH, problem=Finding(path=MANIFEST_PATH, problem=problem).sentence)
    return Published(
        uri=uri, run_id=mark.run_id, spec=spec, receipts=tuple(receipts), left_out=left_out_shards(manifest)
    )


def _place(uri: str) -> tuple[fsspec.AbstractFileSystem, str]:
    try:
        filesystem, root = url_to_fs(uri)
    except (ImportError, ValueError) as error:
        raise UsageError(f"{uri} cannot be read: {error}.") from error
    filesystem.invalidate_cache()
    return filesystem, root.rstrip("/")


def _content(filesystem: fsspec.AbstractFileSystem, path: str) -> bytes | None:
    """The content of a file; None if it does not exist."""
    try:
        with translated(f"Reading {path}"), suppress(FileNotFoundError):
            return bytes(filesystem.cat_file(path))
    except ShardError as error:
        raise UsageError(str(error)) from error
    return None


def _has_remains(filesystem: fsspec.AbstractFileSystem, root: str) -> bool:
    """Whether at least two of a run's folders, or its card, exist.

    One folder proves nothing: many datasets have a `data` folder, and an unpublished output has a workplace.
    """
    folders = sum(bool(filesystem.isdir(f"{root}/{folder}")) for folder in (*DATA_FOLDERS, WORKPLACE))
    return folders > 1 or _CARD_TAG in (_content(filesystem, f"{root}/{CARD_PATH}") or b"")


def _nothing_there(uri: str, manifest: bytes | None) -> str:
    if manifest is not None:
        return f"The {MANIFEST_PATH} at {uri} is damaged or was not written by shardsift, and no other file of a run is there."
    return (
        f"There is no shardsift output at {uri}: neither a {MANIFEST_PATH} nor other published files. "
        "If a run is at work there: producer status"
    )
