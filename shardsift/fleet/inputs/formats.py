"""The formats of input files, by the endings of their names. The case of an ending does not matter."""

from typing import Literal

FormatName = Literal["Parquet", "JSON Lines", "CSV"]

_LINES: dict[str, FormatName] = {
    ".jsonl": "JSON Lines",
    ".ndjson": "JSON Lines",
    ".json": "JSON Lines",  # as C4 and Dolma call it
    ".csv": "CSV",
}
# The first bytes of a file say whether it is compressed; see `line_blocks`.
_FORMATS: dict[str, FormatName] = {
    ".parquet": "Parquet",
    **{ending + last: name for ending, name in _LINES.items() for last in ("", ".gz", ".zst")},
}
ENDINGS = ".parquet, .jsonl, .ndjson, .json or .csv; each but .parquet also with .gz or .zst"
CSV_LAYOUT = "Commas separate fields, and the first line holds their names."


def ending_of(name: str) -> str:
    """The ending of a name or URI, if it is that of a format; otherwise empty."""
    return next((ending for ending in _FORMATS if name.lower().endswith(ending)), "")


def format_name(name: str) -> FormatName:
    """The format of a file, by the ending of its name. Parquet for any other ending."""
    return _FORMATS.get(ending_of(name), "Parquet")


def has_footer(name: str) -> bool:
    """Whether the file is Parquet, whose footer has its rows, types and offsets."""
    return format_name(name) == "Parquet"


def without_ending(name: str) -> str:
    return name[: len(name) - len(ending_of(name))]
