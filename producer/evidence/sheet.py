"""The sheet of rows to label, as CSV, JSON Lines or Parquet. A person or a model fills the column `label`.

A row has `shard`, `row` (in the input), `stratum`, `weight` (how many rows it stands for), `text` as it was scored,
further columns of the input, and `label`. It does not have the score, which would bias the person who labels.
"""

import glob
from collections import Counter
from dataclasses import dataclass, replace
from functools import cached_property, partial
from hashlib import sha256
from os import PathLike
from pathlib import Path
from typing import Any, Protocol

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq

from shardsift.fleet.errors import UsageError
from shardsift.fleet.process.keywords import Location
from shardsift.fleet.run.filter import Filter
from shardsift.producer.evidence.strata import Stratum, stratum_named

SHARD, ROW, STRATUM, WEIGHT, TEXT, LABEL = SHEET_COLUMNS = ("shard", "row", "stratum", "weight", "text", "label")
_FORMATS = {".csv": "csv", ".jsonl": "json", ".ndjson": "json", ".parquet": "parquet"}
_EVERYTHING = Stratum(low=-np.inf, high=np.inf)


class ArrowTable(Protocol):
    """A table of pyarrow, pandas, polars or another library that can export Arrow data."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...


@dataclass(frozen=True, kw_only=True)
class Labels:
    """The rows of a sheet: a file from `producer sample`, or a table with its columns. Some may not be labelled yet."""

    table: pa.Table
    name: str  # of the file
    digest: str  # sha256 of the file
    is_weighted: bool = True

    @property
    def shards(self) -> list[str]:
        return _texts(self.table[SHARD])

    @property
    def rows(self) -> list[int]:
        return [int(row) for row in self.table[ROW].to_pylist()]

    @cached_property
    def strata(self) -> list[Stratum]:
        """The stratum of each row. Without weights, all rows are in one stratum."""
        if not self.is_weighted:
            return [_EVERYTHING] * len(self.table)
        return [stratum_named(name) for name in _texts(self.table[STRATUM])]

    @cached_property
    def labels(self) -> pa.Array:
        """The labels as numbers if all are numbers, as booleans if all are booleans, otherwise as texts. Null if missing.

        Raises UsageError for NaN.
        """
        stripped = pc.utf8_trim_whitespace(self.table[LABEL].combine_chunks())
        column = pc.if_else(pc.equal(stripped, ""), None, stripped)
        for kind in (pa.float64(), pa.bool_()):
            try:
                column = column.cast(kind)
                break
            except pa.ArrowInvalid:
                continue
        if pa.types.is_floating(column.type) and pc.any(pc.is_nan(column)).as_py():
            raise UsageError(f"{self.name} has a label that is NaN. Leave the label of a row empty to leave it out.")
        return column


def is_sheet(place: Location) -> bool:
    """Return whether `place` is a file of labels. Otherwise it names a run or a dataset."""
    file = Path(place)
    return file.is_file() or (file.suffix.lower() in _FORMATS and not file.is_dir())


def read_labels(sheet: Location | ArrowTable, *, is_weighted: bool = True) -> Labels:
    """Read a sheet. Raises UsageError if it is unreadable, lacks a column, or has different labels for one input row."""
    if isinstance(sheet, (str, PathLike)):
        file = Path(sheet)
        table, content = _read(file)
    else:
        file, table = Path("the table"), pa.table(sheet)
        content = repr(table.to_pydict()).encode()
    wanted = [SHARD, ROW, LABEL, *([STRATUM, WEIGHT] if is_weighted else [])]
    if missing := [name for name in wanted if name not in table.column_names]:
        by_weight = " Add --unweighted if all rows had the same chance to be drawn." if missing[-1] == WEIGHT else ""
        raise UsageError(
            f'{file} has no column "{missing[0]}"; it has: {", ".join(table.column_names)}. Label the rows in a sheet that '
            f"`producer sample` has written.{by_weight}"
        )
    kinds = [(ROW, pa.int64()), (LABEL, pa.string()), *([(WEIGHT, pa.float64())] if is_weighted else [])]
    for name, kind_of_column in kinds:
        try:
            column = table[name].cast(kind_of_column)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise UsageError(f'The column "{name}" of {file} cannot be read: {error}.') from error
        if column.null_count and name != LABEL:
            raise UsageError(f'The column "{name}" of {file} is empty in some rows.')
        table = table.set_column(table.column_names.index(name), name, column)
    return _once(Labels(table=table, name=file.name, digest=sha256(content).hexdigest(), is_weighted=is_weighted))


def below(earlier: pa.Table, new: pa.Table) -> pa.Table:
    """Append new rows to an earlier sheet. A column that is text in either table becomes text."""
    database = _database()
    database.register("earlier", earlier)
    database.register("new", new)
    return database.sql("SELECT * FROM earlier UNION ALL BY NAME SELECT * FROM new").to_arrow_table()


def refuse_existing(file: Path) -> None:
    """Raise UsageError if the file exists, because it may have labels, if its ending is unknown, or if its folder is missing."""
    _format(file)
    if file.exists():
        raise UsageError(f"{file} exists, and may have labels. Name another --output, or remove it.")
    if not file.parent.is_dir():
        raise UsageError(f"There is no folder {file.parent}. Make it, or name another --output.")


def write_sheet(table: pa.Table, file: Path) -> None:
    """Write rows to label. Raises UsageError like `refuse_existing`, and if the disk is full."""
    refuse_existing(file)
    quoted = str(file).replace("'", "''")
    try:
        database = _database()
        database.register("sheet", table)
        database.execute(f"COPY (SELECT * FROM sheet) TO '{quoted}' (FORMAT {_format(file)})")
    except duckdb.Error as error:
        file.unlink(missing_ok=True)
        raise UsageError(f"{file} cannot be written: {str(error).splitlines()[0]}") from error


def good_rows(labels: Labels, positive: str | None, threshold: float | None) -> tuple[npt.NDArray[np.float64], str]:
    """Return which rows are good, and the condition for good.

    The array has 1 for a good row, 0 for any other labelled row, and NaN for a row without a label. Raises UsageError if
    `positive` is None and the labels do not say which rows are good.
    """
    found = labels.labels
    is_labelled = np.asarray(found.is_valid())
    values = set(found.drop_null().unique().to_pylist())
    if not values:
        raise UsageError(f"{labels.name} has no label yet. Fill its column label.")
    if positive is None:
        if values <= {0, 1}:  # which equal False and True
            positive = LABEL if pa.types.is_boolean(found.type) else f"{LABEL} = 1"
        elif pa.types.is_floating(found.type) and threshold is not None:
            positive = f"{LABEL} >= {threshold:.9g}"
        else:
            raise UsageError(f"Say with --positive which labels are good, such as --positive \"{LABEL} = 'good'\".")
    table = pa.table({LABEL: found})
    good = np.zeros(len(table))
    good[Filter(positive, table.schema).keep(table)] = 1
    good[~is_labelled] = np.nan
    return good, positive


def _read(file: Path) -> tuple[pa.Table, bytes]:
    read = _READ[_format(file)]
    try:
        content = file.read_bytes()
        return read(file, content), content
    except OSError as error:
        raise UsageError(f"{file} cannot be read: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{file} is not UTF-8. Save it as UTF-8.") from error
    except (duckdb.Error, pa.ArrowException) as error:
        raise UsageError(f"{file} cannot be read: {str(error).splitlines()[0]}") from error


def _once(labels: Labels) -> Labels:
    """Keep one line for each input row, a labelled one if there is one. Raises UsageError if two labels of a row disagree."""
    keys = list(zip(labels.shards, labels.rows, strict=True))
    twice = [key for key, times in Counter(keys).items() if times > 1]
    if not twice:
        return labels
    values = labels.labels.to_pylist()
    said: dict[tuple[str, int], Any] = {}
    first: dict[tuple[str, int], int] = {}
    for index, (key, value) in enumerate(zip(keys, values, strict=True)):
        if value is not None and said.setdefault(key, value) != value:
            raise UsageError(
                f"{labels.name} labels row {key[1]:,} of {key[0]} twice, as {said[key]} and {value}. Decide on one."
            )
        if key not in first or values[first[key]] is None:
            first[key] = index
    return replace(labels, table=labels.table.take(sorted(first.values())))


def _format(file: Path) -> str:
    """Return DuckDB's name for the format of a file. Raises UsageError for an unknown ending."""
    kind = _FORMATS.get(file.suffix.lower())
    if kind is None:
        raise UsageError(f"{file} has no ending of a format of sheets. Name a file that ends in {', '.join(_FORMATS)}.")
    return kind


def _read_csv(file: Path, content: bytes) -> pa.Table:
    """Read all columns as text. Guesses the delimiter, because spreadsheets of some countries write semicolons.

    pyarrow skips a byte order mark.
    """
    first_line = content.decode().partition("\n")[0]
    delimiter = max(",;\t", key=first_line.count)
    read, parse = pyarrow.csv.ReadOptions, pyarrow.csv.ParseOptions
    options = {
        "read_options": read(block_size=len(content) + 1),  # a text may be longer than Arrow's blocks
        "parse_options": parse(delimiter=delimiter, newlines_in_values=True),
    }
    names = pyarrow.csv.open_csv(file, **options).schema.names
    convert = pyarrow.csv.ConvertOptions(
        column_types=dict.fromkeys(names, pa.string()),
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
        null_values=[""],
    )
    return pyarrow.csv.read_csv(file, **options, convert_options=convert)


def _read_json(file: Path, content: bytes) -> pa.Table:
    """Read all columns as text, so that DuckDB does not convert texts to dates."""
    most = len(content) + 1  # bytes of a row
    read = partial(_database().read_json, glob.escape(str(file)), maximum_object_size=most, hive_partitioning=False)
    return read(columns=dict.fromkeys(read(sample_size=-1).columns, "VARCHAR")).to_arrow_table()


def _read_parquet(file: Path, _: bytes) -> pa.Table:
    with pq.ParquetFile(file) as sheet:
        return sheet.read()


_READ = {"csv": _read_csv, "json": _read_json, "parquet": _read_parquet}


def _database() -> duckdb.DuckDBPyConnection:
    return duckdb.connect(":memory:", config={"autoinstall_known_extensions": "false"})


def _texts(column: pa.ChunkedArray) -> list[str]:
    return [str(value) for value in column.to_pylist()]
