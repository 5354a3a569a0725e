"""Open an input file by its URI."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from fleet.inputs.columns import Columns
from fleet.inputs.csv_file import CsvFile
from fleet.inputs.formats import format_of, has_footer
from fleet.inputs.input_file import InputFile
from fleet.inputs.json_lines import JsonLines
from fleet.inputs.line_blocks import LineFile
from fleet.inputs.parquet_file import READ_AHEAD_BYTES, ParquetInput, open_parquet
from fleet.storage.errors import translated
from fleet.storage.hub_access import filesystem_of


@contextmanager
def open_input(uri: str, columns: Columns | None = None, *, only: bool = False) -> Iterator[InputFile]:
    """Open a file for streaming. A file whose name means no format is Parquet.

    JSON Lines and CSV files do not say the types of their columns: they have those of `columns`, or else those of their first
    rows. With `only`, they may have other columns, which are left out. A Parquet file has its own columns, in that order.
    Raises ShardError if the file is missing or broken, TransientError if the network is.
    """
    known = format_of(uri)
    if known is None or has_footer(uri):
        with open_parquet(uri) as parquet:
            yield ParquetInput(parquet, columns, uri)
        return
    with translated(f"Opening {uri}"):
        filesystem, path = filesystem_of(uri)
        lines = LineFile(partial(filesystem.open, path, "rb", block_size=READ_AHEAD_BYTES), known.codec, uri)
    yield JsonLines(lines, columns, only=only) if known.kind == "JSON Lines" else CsvFile(lines, columns, only=only)
