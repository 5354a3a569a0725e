"""Open input files: local, over the Hub, or anywhere fsspec goes."""

from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa
import pyarrow.parquet as pq
from fsspec.core import url_to_fs

from fleet.storage.errors import translated

_BLOCK_BYTES = 32 << 20  # read ahead: FineWeb's 1,000-row groups would cost a request each
_BUFFER_BYTES = 1 << 20  # column chunks are read through a buffer, so a huge row group is never in memory whole


@contextmanager
def open_parquet(uri: str) -> Iterator[pq.ParquetFile]:
    """A Parquet file for streaming. Raises ShardError where it is missing or broken, TransientError for the network."""
    filesystem, path = url_to_fs(uri)
    with translated(f"Opening {uri}"):
        file = filesystem.open(path, "rb", block_size=_BLOCK_BYTES)
    with file:
        with translated(f"Opening {uri}"):
            parquet = pq.ParquetFile(file, buffer_size=_BUFFER_BYTES, pre_buffer=False)
        yield parquet


def describe_columns(schema: pa.Schema) -> tuple[tuple[str, str], ...]:
    """The (name, type) pairs by which shards of a run must agree."""
    return tuple((field.name, str(field.type)) for field in schema)
