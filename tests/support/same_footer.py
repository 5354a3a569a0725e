"""Parquet files that common writers rewrite with other rows and the same size and footer."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from shardsift.fleet.inputs.identity import identity_now


def write_uncompressed(file: Path, rows: pa.Table) -> None:
    """The footer has sizes, bounds and counts, which do not depend on the order of the rows."""
    pq.write_table(rows, file, compression="none")


def rewrite_shuffled(file: Path, *columns: str) -> None:
    """Write an uncompressed file again, with the values of all or these columns in another order."""
    before, rows = identity_now(str(file)), pq.read_table(file)
    shuffled = rows.take(np.random.default_rng(5).permutation(len(rows)))
    for name in columns or rows.column_names:
        rows = rows.set_column(rows.column_names.index(name), name, shuffled[name])
    write_uncompressed(file, rows)
    assert identity_now(str(file)) == before


def rewrite_with_two_rows_exchanged(file: Path) -> None:
    """Write a file compressed with Snappy again. About one exchange in twelve leaves its size."""
    before, rows = identity_now(str(file)), pq.read_table(file)
    for exchanged in _exchanges(len(rows)):
        pq.write_table(rows.take(exchanged), file)
        if identity_now(str(file)) == before:
            return
    raise AssertionError("no exchange leaves the footer as it was")


def _exchanges(rows: int) -> Iterator[list[int]]:
    random = np.random.default_rng(5)
    while True:
        one, other = sorted(random.choice(rows, 2, replace=False).tolist())
        order = list(range(rows))
        order[one], order[other] = other, one
        yield order
