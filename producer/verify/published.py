"""What a published dataset says of itself: the manifest, with the spec of its run."""

from dataclasses import dataclass

from fsspec.core import url_to_fs

from fleet.errors import ShardError, UsageError
from fleet.receipt import Receipt
from fleet.spec import RunSpec
from fleet.storage.errors import translated
from fleet.storage.manifest import left_out_shards, mark_of, receipts_listed, spec_of
from fleet.storage.output import MANIFEST_PATH


@dataclass(frozen=True, kw_only=True)
class Published:
    """The manifest of an output, read back."""

    uri: str
    run_id: str
    spec: RunSpec
    receipts: tuple[Receipt, ...]
    left_out: tuple[str, ...]  # shards that failed, and that the run was published without


def read_published(uri: str) -> Published:
    """Raises UsageError if nothing is published there that shardsift wrote, TransientError for the network."""
    manifest = _manifest(uri)
    mark, spec = mark_of(manifest), spec_of(manifest)
    receipts = receipts_listed(manifest, mark.run_id) if mark else []
    if mark is None or spec is None or not receipts:
        raise UsageError(
            f"The {MANIFEST_PATH} at {uri} is damaged, or not one of shardsift's. If a run of yours wrote it, the command "
            "that began the run publishes it again."
        )
    return Published(
        uri=uri, run_id=mark.run_id, spec=spec, receipts=tuple(receipts), left_out=left_out_shards(manifest)
    )


def _manifest(uri: str) -> bytes:
    try:
        filesystem, root = url_to_fs(uri)
        filesystem.invalidate_cache()
        with translated(f"Reading {uri}/{MANIFEST_PATH}"):
            return bytes(filesystem.cat_file(f"{root.rstrip('/')}/{MANIFEST_PATH}"))
    except ShardError as error:
        raise UsageError(f"Nothing is published at {uri}, or its {MANIFEST_PATH} was lost: {error}") from error
    except (ImportError, ValueError) as error:
        raise UsageError(f"{uri} cannot be read: {error}.") from error
