"""The texts of a trial: the first ones of the user's input, or prose that comes with Python."""

from collections.abc import Iterator

import pyarrow as pa

from fleet.columns import is_text, text_column_names
from fleet.errors import ShardsiftError, UsageError
from fleet.storage.errors import translated
from fleet.storage.inputs.input_file import InputFile
from fleet.storage.inputs.opening import open_input
from fleet.storage.listing import list_files
from worker.scoring.sample import sample_texts
from worker.scoring.tokenizing.texts import plain_texts
from worker.shard.texts import joined_columns

_STEP_ROWS = 256  # decoded at once


def trial_texts(uri: str | None, text_column: str, rows: int) -> pa.LargeStringArray:
    """The first `rows` texts, or fewer if there are fewer. Nulls are skipped. Raises UsageError if there are none.

    `text_column` names a column, or several that are joined as in a run.
    """
    if uri is None:
        return plain_texts(sample_texts(rows))
    try:
        texts = _first_texts(uri, text_column, rows)
    except ShardsiftError as error:
        raise UsageError(str(error)) from error
    except (ImportError, ValueError) as error:  # from fsspec: unknown protocol, or a package is missing
        raise UsageError(f"Cannot read {uri}: {error}.") from error
    if not len(texts):
        raise UsageError(f'{uri} has no text in the column "{text_column}". Give --input a file with rows.')
    return texts


def _first_texts(uri: str, text_column: str, rows: int) -> pa.LargeStringArray:
    found: list[pa.LargeStringArray] = []
    for part in _parts(uri, text_column):
        found.append(part[: rows - sum(map(len, found))])
        if sum(map(len, found)) == rows:
            break
    return pa.concat_arrays(found) if found else pa.array([], pa.large_string())


def _parts(uri: str, text_column: str) -> Iterator[pa.LargeStringArray]:
    for file_uri in list_files(uri).uris:
        with open_input(file_uri) as file:
            columns = text_column_names(text_column, file.schema)
            for column in columns:
                _check(file, file_uri, column)
            with translated(f"Reading {file_uri}"):
                for batch in file.batches(columns, most_rows=_STEP_ROWS, use_threads=False):
                    yield joined_columns(pa.Table.from_batches([batch]), columns).drop_null()


def _check(file: InputFile, uri: str, column: str) -> None:
    schema = file.schema
    if column not in schema.names:
        raise UsageError(
            f'{uri} has no column "{column}"; it has: {", ".join(schema.names)}. Name one with --text-column.'
        )
    if not is_text(schema.field(column).type):
        raise UsageError(f'The column "{column}" of {uri} holds {schema.field(column).type}, not texts.')
