"""The formats of input files, which are known by the endings of their names, in small letters or capitals."""

from dataclasses import dataclass
from typing import Literal

FormatName = Literal["Parquet", "JSON Lines", "CSV"]

_KINDS: dict[str, FormatName] = {
    ".parquet": "Parquet",
    ".jsonl": "JSON Lines",
    ".ndjson": "JSON Lines",
    ".json": "JSON Lines",  # as C4 and Dolma call it
    ".csv": "CSV",
}
_COMPRESSED = (".gz", ".zst")
ENDINGS = ".parquet, .jsonl, .ndjson, .json or .csv; each but .parquet also with .gz or .zst"

CSV_LAYOUT = "Commas separate fields, and the first line holds their names."


@dataclass(frozen=True, kw_only=True)
class Format:
    """How the rows of a file are stored. `ending` is the part of the name that says so.

    Whether a file is compressed is known by its first bytes; see `line_blocks`.
    """

    kind: FormatName
    ending: str


_FORMATS = tuple(
    Format(kind=kind, ending=ending + last)
    for ending, kind in _KINDS.items()
    for last in ("", *_COMPRESSED)
    if kind != "Parquet" or not last
)


def format_of(name: str) -> Format | None:
    """The format that the ending of a name or URI means; None if it means none."""
    return next((known for known in _FORMATS if name.lower().endswith(known.ending)), None)


def format_name(name: str) -> FormatName:
    """The kind of file that a name means; Parquet if its ending means none."""
    known = format_of(name)
    return known.kind if known else "Parquet"


def has_footer(name: str) -> bool:
    """Whether the file is Parquet, whose footer has its rows, types and offsets."""
    return format_name(name) == "Parquet"


def without_ending(name: str) -> str:
    known = format_of(name)
    return name[: -len(known.ending)] if known else name
