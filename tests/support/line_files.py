"""Write and read files of lines."""

import csv
import gzip
import io
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from shardsift.fleet.inputs.columns import ColumnTypes
from shardsift.fleet.inputs.formats import has_footer
from shardsift.fleet.inputs.input_file import BadRows
from shardsift.fleet.inputs.open_input import columns_of_lines, open_input
from shardsift.fleet.run.output_columns import describe_columns


def write_file(path: Path, content: bytes) -> Path:
    """Write the content, compressed if the file's name ends with .gz or .zst."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.name.endswith(".gz"):
        content = gzip.compress(content, mtime=0)
    if path.name.endswith(".zst"):
        content = pa.compress(content, "zstd", asbytes=True)
    path.write_bytes(content)
    return path


def write_json_lines(path: Path, rows: Iterable[dict[str, Any]]) -> Path:
    return write_file(path, b"".join(json.dumps(row).encode() + b"\n" for row in rows))


def write_as_lines(shards: Path, folder: Path, ending: str) -> Path:
    """Copy the rows of Parquet files to JSON Lines or CSV files with the same stems. JSON Lines leave out nulls."""
    for file in sorted(shards.glob("*.parquet")):
        rows = pq.read_table(file).to_pylist()
        if ".csv" in ending:
            write_csv(folder / f"{file.stem}{ending}", rows)
        else:
            filled = ({name: value for name, value in row.items() if value is not None} for row in rows)
            write_json_lines(folder / f"{file.stem}{ending}", filled)
    return folder


def write_csv(path: Path, rows: list[dict[str, Any]], *, header: bool = True) -> Path:
    written = io.StringIO(newline="")
    writer = csv.DictWriter(written, rows[0])
    if header:
        writer.writeheader()
    writer.writerows(rows)
    return write_file(path, written.getvalue().encode())


def read(path: Path, columns: ColumnTypes | None = None, *, only: bool = False) -> pa.Table:
    """Read all rows as a worker does. `columns` are those of the run; by default, those of the file."""
    columns = columns or columns_of(path)
    with open_input(str(path), columns, only=only) as file:
        return pa.Table.from_batches(file.batches(), file.schema)


def read_with_bad(path: Path, columns: ColumnTypes, *, only: bool = False) -> tuple[pa.Table, BadRows]:
    """Read all rows as a worker does. Also returns the rows that cannot be read."""
    bad: BadRows = {}
    with open_input(str(path), columns, only=only) as file:
        return pa.Table.from_batches(file.batches(bad=bad), file.schema), bad


def columns_of(path: Path, chosen: ColumnTypes | None = None) -> ColumnTypes:
    """Return the columns of a run whose first shard is this file."""
    if not has_footer(str(path)):
        return columns_of_lines([str(path)], chosen)
    with open_input(str(path)) as file:
        return describe_columns(file.schema)


def rows_of(path: Path, columns: ColumnTypes | None = None, *, only: bool = False) -> list[dict[str, Any]]:
    return list(read(path, columns, only=only).to_pylist())
