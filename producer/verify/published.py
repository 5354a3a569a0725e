"""What a published dataset says of itself: the manifest, with the spec of its run."""

from dataclasses import dataclass

import pyarrow.parquet as pq
from fsspec.core import url_to_fs

from fleet.errors import ShardError, UsageError
from fleet.receipt import Receipt
from fleet.spec import RunSpec
from fleet.storage.errors import translated
from fleet.storage.manifest import left_out_shards, receipts_listed, spec_of
from fleet.storage.output import MANIFEST_PATH, Mark


@dataclass(frozen=True, kw_only=True)
class Published:
    """The manifest of an output, read back."""

    uri: str
    mark: Mark
    spec: RunSpec
    receipts: tuple[Receipt, ...]
    left_out: tuple[str, ...]


def read_published(uri: str) -> Published:
    """Raises UsageError if nothing is published there that shardsift wrote, TransientError for the network."""
    try:
        return _read(uri)
    except ShardError as error:
        raise UsageError(f"Nothing is published at {uri}: its {MANIFEST_PATH} cannot be read. {error}") from error


def _read(uri: str) -> Published:
    filesystem, root = url_to_fs(uri)
    with translated(f"Reading {uri}/{MANIFEST_PATH}"), filesystem.open(f"{root}/{MANIFEST_PATH}", "rb") as manifest:
        schema = pq.read_schema(manifest)
        mark, spec = Mark.read_from(manifest), spec_of(schema)
        if mark is None or spec is None:
            raise UsageError(f"The {MANIFEST_PATH} at {uri} is not one of shardsift's.")
        receipts = tuple(receipts_listed(manifest, mark.run_id))
    return Published(uri=uri, mark=mark, spec=spec, receipts=receipts, left_out=left_out_shards(schema))
