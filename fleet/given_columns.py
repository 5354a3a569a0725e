"""Which columns of a file of lines are read, as the user says it."""

from fleet.errors import UsageError
from fleet.storage.inputs.columns import NAMED_TYPES, SEEN, Columns
from fleet.storage.inputs.formats import has_footer


def chosen_columns(text: str | None) -> Columns | None:
    """`id,ups:int64` as pairs of name and type. Raises UsageError. A colon that no type follows is part of the name."""
    if text is None:
        return None
    columns = tuple(map(_column, filter(None, map(str.strip, text.split(",")))))
    names = [name for name, _ in columns]
    if not names:
        raise UsageError("--columns is empty. Name the columns to read.")
    if repeated := next((name for name in names if names.count(name) > 1), None):
        raise UsageError(f'--columns names "{repeated}" twice.')
    return columns


def check_takes_columns(uri: str) -> None:
    """Raises UsageError for a Parquet file, which names its columns and their types itself."""
    if has_footer(uri):
        raise UsageError(
            "--columns is for JSON Lines and CSV files. Of Parquet files every column is read. Leave out --columns."
        )


def _column(text: str) -> tuple[str, str]:
    name, _, kind = text.rpartition(":")
    return (name, kind) if name and kind in NAMED_TYPES else (text, SEEN)
