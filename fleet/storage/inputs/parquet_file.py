"""Rows of a Parquet file."""

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from fleet.storage.inputs.input_file import STEP_ROWS

_STEP_BYTES = 8 << 20  # rows are decoded in steps of about this size


class ParquetInput:
    """A Parquet file as an InputFile."""

    def __init__(self, parquet: pq.ParquetFile) -> None:
        self._parquet = parquet
        self.schema: pa.Schema = parquet.schema_arrow

    def batches(
        self, columns: Sequence[str] | None = None, *, most_rows: int = STEP_ROWS, use_threads: bool = True
    ) -> Iterator[pa.RecordBatch]:
        step = min(most_rows, _step_rows(self._parquet.metadata))
        yield from self._parquet.iter_batches(batch_size=step, columns=columns, use_threads=use_threads)

    def count_rows(self, most: int | None = None) -> int:
        rows = int(self._parquet.metadata.num_rows)
        return rows if most is None else min(rows, most)


def _step_rows(metadata: pq.FileMetaData) -> int:
    """The rows per step: fewer if rows are large."""
    groups = [metadata.row_group(i) for i in range(metadata.num_row_groups)]
    bytes_a_row = max((group.total_byte_size / max(1, group.num_rows) for group in groups), default=0)
    return max(1, min(STEP_ROWS, int(_STEP_BYTES / max(1, bytes_a_row))))
