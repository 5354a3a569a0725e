"""The formats of input files, recognised by the endings of their names. The case does not matter."""

from typing import Literal

FormatName = Literal["Parquet", "JSON Lines", "CSV"]

_LINES: dict[str, FormatName] = {
    ".jsonl": "JSON Lines",
    ".ndjson": "JSON Lines",
    ".json": "JSON Lines",  # as in C4 and Dolma
    ".csv": "CSV",
}
# Whether a file is compressed is read from its first bytes (see `line_blocks`).
_FORMATS: dict[str, FormatName] = {
    ".parquet": "Parquet",
    **{ending + last: name for ending, name in _LINES.items() for last in ("", ".gz", ".zst")},
}
ENDINGS = ".parquet, .jsonl, .ndjson, .json or .csv; each but .parquet also with .gz or .zst"
CSV_LAYOUT = "Commas separate fields, and the first line holds their names."


def ending_of(name: str) -> str:
    """Return the ending of a name or URI. Empty if no format has that ending."""
    return next((ending for ending in _FORMATS if name.lower().endswith(ending)), "")


def format_name(name: str) -> FormatName:
    """Return the format of a file, by the ending of its name. An unknown ending counts as Parquet."""
    return _FORMATS.get(ending_of(name), "Parquet")


def has_footer(name: str) -> bool:
    """Return whether the file is Parquet, whose footer has the number of rows, the types and the offsets."""
    return format_name(name) == "Parquet"


def without_ending(name: str) -> str:
    return name[: len(name) - len(ending_of(name))]
