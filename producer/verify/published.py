"""Find out what is published at a URI, or what is left of it."""

import fsspec

from fleet.errors import UsageError
from fleet.storage.folder import WORKPLACE
from fleet.storage.inspection import DATA_FOLDERS, Finding, Problem
from fleet.storage.output import CARD_PATH, MANIFEST_PATH
from fleet.storage.published import Published, content_of, open_place, published_at
from producer.verify.report import Fault

_CARD_TAG = b"tags:\n- shardsift"


def read_published(uri: str, *, published_run: str | None = None) -> Published | Fault:
    """Read the manifest. Returns a Fault if it is unusable although a run, or `published_run`, should be there.

    Raises UsageError if there is nothing of shardsift, TransientError for the network.
    """
    filesystem, root = open_place(uri)
    manifest = content_of(filesystem, f"{root}/{MANIFEST_PATH}")
    if published := published_at(uri, manifest):
        return published
    if not (published_run or _has_remains(filesystem, root)):
        raise UsageError(_nothing_there(uri, manifest))
    problem = Problem.MISSING if manifest is None else Problem.UNREADABLE
    return Fault(path=MANIFEST_PATH, problem=Finding(path=MANIFEST_PATH, problem=problem).sentence)


def _has_remains(filesystem: fsspec.AbstractFileSystem, root: str) -> bool:
    """Whether at least two of a run's folders, or its card, exist.

    One folder proves nothing: many datasets have a `data` folder, and an unpublished output has a workplace.
    """
    folders = sum(bool(filesystem.isdir(f"{root}/{folder}")) for folder in (*DATA_FOLDERS, WORKPLACE))
    return folders > 1 or _CARD_TAG in (content_of(filesystem, f"{root}/{CARD_PATH}") or b"")


def _nothing_there(uri: str, manifest: bytes | None) -> str:
    if manifest is not None:
        return f"The {MANIFEST_PATH} at {uri} is damaged or was not written by shardsift, and no other file of a run is there."
    return (
        f"There is no shardsift output at {uri}: neither a {MANIFEST_PATH} nor other published files. "
        "If a run is at work there: producer status"
    )
