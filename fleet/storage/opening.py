"""Open an input file or the output of a run by its URI."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import BinaryIO

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq

from fleet.errors import ShardError, UsageError
from fleet.inputs.formats import ENDINGS, format_of
from fleet.storage.errors import translated
from fleet.storage.folder import FolderOutput
from fleet.storage.hub import HubOutput
from fleet.storage.hub_access import filesystem_of
from fleet.storage.manifest import Manifest, read_manifest
from fleet.storage.output import MANIFEST_PATH, Output

READ_AHEAD_BYTES = 32 << 20  # read-ahead; without it, each of FineWeb's 1,000-row groups would cost a request
_BUFFER_BYTES = 1 << 20  # column chunks are read through a buffer, so a huge row group is never loaded whole


@contextmanager
def open_parquet(uri: str) -> Iterator[pq.ParquetFile]:
    """Open a Parquet file for streaming. Raises ShardError if it is missing or broken, TransientError if the network is.

    Dictionaries are read with int32 indices: with others, pyarrow refuses a column of which one text is not UTF-8.
    """
    filesystem, path = filesystem_of(uri)
    with translated(f"Opening {uri}"):
        file = filesystem.open(path, "rb", block_size=READ_AHEAD_BYTES)
    with file:
        with translated(f"Opening {uri}"):
            parquet = _parquet_file(file, uri)
        yield parquet


def _parquet_file(file: BinaryIO, uri: str) -> pq.ParquetFile:
    try:
        metadata = pq.read_metadata(file)
        written = metadata.schema.to_arrow_schema()
        names = [field.name for field in written if pa.types.is_dictionary(field.type)]
        return pq.ParquetFile(
            file, metadata=metadata, read_dictionary=names, buffer_size=_BUFFER_BYTES, pre_buffer=False
        )
    except pa.ArrowInvalid as error:
        if format_of(uri):
            raise
        raise ShardError(
            f"Opening {uri}: not a readable Parquet file. The names of input files end in {ENDINGS}."
        ) from error


def open_output(uri: str, run_id: str) -> Output:
    """The output at a URI: `hf://datasets/<user>/<name>`, a folder, or any URL that fsspec can write."""
    return output_class(uri)(uri, run_id)


def output_class(uri: str) -> type[HubOutput] | type[FolderOutput]:
    """The kind of output at a URI. Its properties are known without opening it."""
    return HubOutput if uri.startswith("hf://") else FolderOutput


# Read what a published dataset says about itself: the manifest, with the spec of its run. Needs no ledger.


@dataclass(frozen=True, kw_only=True)
class Published(Manifest):
    """The manifest of an output, read back."""

    uri: str


def published_at(uri: str, content: bytes | None) -> Published | None:
    """Read the manifest of the output at `uri`. None if it is damaged or shardsift did not write it."""
    manifest = read_manifest(content)
    return Published(uri=uri, **vars(manifest)) if manifest else None


def manifest_at(uri: str) -> bytes | None:
    """The manifest of the output at a folder, bucket or `hf://datasets/…` URI, unread; None if there is none.

    Raises UsageError if the place cannot be read, TransientError for the network.
    """
    filesystem, root = open_place(uri)
    return content_of(filesystem, f"{root}/{MANIFEST_PATH}")


def open_place(uri: str) -> tuple[fsspec.AbstractFileSystem, str]:
    """A URI's file system, without what it remembers of earlier listings, and the path there. Raises UsageError."""
    try:
        filesystem, root = filesystem_of(uri)
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
