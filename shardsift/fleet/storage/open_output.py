"""Open the output of a run by its URI, and read published scores and manifests."""

import hashlib
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, groupby
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from shardsift.fleet.errors import ShardError, UsageError
from shardsift.fleet.run.receipt import OutputFile, Receipt
from shardsift.fleet.storage.errors import translated
from shardsift.fleet.storage.files import Files
from shardsift.fleet.storage.folder import FolderOutput
from shardsift.fleet.storage.hub import HubOutput
from shardsift.fleet.storage.hub_files import IN_BUCKET
from shardsift.fleet.storage.manifest import Manifest, read_manifest
from shardsift.fleet.storage.output import MANIFEST_PATH, Output
from shardsift.fleet.storage.parquet import RowGroups


def open_output(uri: str, run_id: str, *, state_uri: str | None = None) -> Output:
    """Open the output at a URI: `hf://datasets/<user>/<name>`, a folder, a bucket, or any URL that fsspec can write.

    For a dataset on the Hub, `state_uri` is a folder or bucket for receipts and checkpoints, which the dataset cannot keep.
    Raises UsageError for any other URI.
    """
    if not is_on_hub(uri):
        return FolderOutput(uri, run_id)
    if state_uri and is_on_hub(state_uri):
        raise UsageError(
            f"SHARDSIFT_STATE_URI is {state_uri}. Name a folder or a bucket, such as hf://buckets/<user>/<name>."
        )
    return HubOutput(uri, run_id, FolderOutput(state_uri, run_id) if state_uri else None)


def is_on_hub(uri: str) -> bool:
    """Return whether the output is a dataset on the Hub. The Hub lists sha256s, and drops staged files after a day.

    Folders and buckets do neither, not even buckets on the Hub.
    """
    return uri.startswith("hf://") and not IN_BUCKET.fullmatch(uri)


def stored_scores(uri: str, receipts: Iterable[Receipt], columns: Sequence[str]) -> Iterator[tuple[Receipt, pa.Table]]:
    """Yield each receipt with these columns of its shard's scores. A file that holds several shards is opened once."""
    for file, shards in groupby(receipts, key=lambda receipt: receipt.scores):
        receipt = next(shards)
        with sound_copy(uri, receipt.run_id, file) as copy, translated(f"Reading {file.path}"):
            groups = RowGroups(copy)
            yield from ((one, groups.table(one.scored, columns)) for one in chain([receipt], shards))


def sound_copy(uri: str, run_id: str, file: OutputFile, *, scratch_dir: Path | None = None) -> pq.ParquetFile:
    """Copy a file of an output, check its sha256, and open the copy. The copy is deleted when it is closed.

    If the sha256 is wrong, copies the file once more, because the transfer may have damaged it. Raises ShardError if
    that copy is wrong too. The copy is in `scratch_dir`, or in the system's temporary folder.
    """
    output = open_output(uri, run_id)
    for _ in range(2):
        copying = translated(f"Copying {file.path} to {scratch_dir or 'the temporary folder'}")
        with copying, tempfile.NamedTemporaryFile(dir=scratch_dir) as copy:
            with output.open_file(file) as stored, translated(f"Reading {file.path}"):
                shutil.copyfileobj(stored, copy)
            copy.seek(0)
            if hashlib.file_digest(copy, "sha256").hexdigest() == file.sha256:
                return pq.ParquetFile(copy.name)
    raise ShardError(
        f"{uri}/{file.path} has changed since it was written (its sha256 differs). The command that made its run, with "
        "--verify, repairs it."
    )


# Read the manifest of a published dataset, with the spec of its run. Needs no ledger.


@dataclass(frozen=True, kw_only=True)
class Published(Manifest):
    uri: str


def published_at(uri: str, content: bytes | None) -> Published | None:
    """Parse `content`, the manifest of the output at `uri`. None if it is missing, damaged or not written by this release."""
    manifest = read_manifest(content)
    return Published(uri=uri, **vars(manifest)) if manifest else None


def manifest_at(uri: str) -> bytes | None:
    """Read the bytes of the manifest at a folder, bucket or `hf://datasets/…` URI. None if there is none.

    Raises UsageError if it cannot be read, and TransientError if the network fails.
    """
    return content_at(uri, MANIFEST_PATH)


def content_at(uri: str, path: str) -> bytes | None:
    """Read a file of an output. None if it does not exist. Raises the errors of `manifest_at`."""
    files = Files(uri)
    try:
        with translated(f"Reading {uri.rstrip('/')}/{path}"):
            return files.content(path)
    except ShardError as error:
        raise UsageError(str(error)) from error
