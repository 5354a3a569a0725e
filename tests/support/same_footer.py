"""Parquet files that common writers rewrite with other rows and the same size and footer."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from shardsift.fleet.inputs.identity import identity_now


def write_uncompressed(file: Path, rows: pa.Table) -> None:
    """Write rows so that sizes, bounds and counts in the footer do not depend on the order of the rows."""
    pq.write_table(rows, file, compression="none")


def rewrite_shuffled(file: Path, *columns: str) -> None:
    """Rewrite an uncompressed file with the values of these columns, or of all, in another order.

    The footer stays the same.
    """
    before, rows = identity_now(str(file)), pq.read_table(file)
    shuffled = rows.take(np.random.default_rng(5).permutation(len(rows)))
    for name in columns or rows.column_names:
        rows = rows.set_column(rows.column_names.index(name), name, shuffled[name])
    write_uncompressed(file, rows)
    assert identity_now(str(file)) == before


def rewrite_with_two_rows_exchanged(file: Path) -> None:
    """Rewrite a file compressed with Snappy, with two rows exchanged but the same footer.

    Tries random exchanges: about one in twelve leaves the size unchanged.
    """
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
