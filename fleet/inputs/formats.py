"""The formats of input files, which are known by the endings of their names."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import BinaryIO, Literal

Kind = Literal["Parquet", "JSON Lines", "CSV"]
Codec = Literal["gzip", "zstd"]

_KINDS: dict[str, Kind] = {
    ".parquet": "Parquet",
    ".jsonl": "JSON Lines",
    ".ndjson": "JSON Lines",
    ".json": "JSON Lines",  # as C4 and Dolma call it
    ".csv": "CSV",
}
_CODECS: dict[str, Codec] = {".gz": "gzip", ".zst": "zstd"}
_BESIDE_DATA = ("readme", "license", "checksums", "md5sum", "sha1sum", "sha256sum", "sha512sum")
_NO_DATA = (".md", ".json", ".md5", ".sha1", ".sha256", ".sha512", ".crc")
ENDINGS = ".parquet, .jsonl, .ndjson, .json or .csv; each but .parquet also with .gz or .zst"

CSV_LAYOUT = "Commas separate fields, and the first line holds their names."


@dataclass(frozen=True, kw_only=True)
class Format:
    """How the rows of a file are stored. `ending` is the part of the name that says so."""

    kind: Kind
    codec: Codec | None = None
    ending: str


_FORMATS = tuple(
    Format(kind=kind, codec=codec, ending=ending + last)
    for ending, kind in _KINDS.items()
    for last, codec in (("", None), *_CODECS.items())
    if kind != "Parquet" or not codec
)


def format_of(name: str) -> Format | None:
    """The format that the ending of a name or URI means; None if it means none."""
    return next((known for known in _FORMATS if name.endswith(known.ending)), None)


def kind_of(name: str) -> Kind:
    """A file whose name means no format is read as Parquet."""
    known = format_of(name)
    return known.kind if known else "Parquet"


def has_footer(name: str) -> bool:
    """Whether the file is Parquet, whose footer has its rows, types and offsets."""
    return kind_of(name) == "Parquet"


def without_ending(name: str) -> str:
    known = format_of(name)
    return name.removesuffix(known.ending) if known else name


def is_often_metadata(name: str) -> bool:
    """Whether files of this name also stand beside data, such as `dataset_info.json`."""
    return name.endswith(".json")


def stands_beside_data(name: str) -> bool:
    """Whether this is certainly no data: a description, a license or a list of checksums."""
    last = name.rpartition("/")[2].lower()
    return last.startswith(_BESIDE_DATA) or last.endswith(_NO_DATA)


def counted_kinds(names: Iterable[str]) -> dict[Kind, int]:
    """The number of files of each format."""
    counts: dict[Kind, int] = {}
    for name in names:
        if known := format_of(name):
            counts[known.kind] = counts.get(known.kind, 0) + 1
    return counts


# Guess what a file really is that is not what its name says, from its first and last bytes.

_PARQUET = b"PAR1"
_HEAD_BYTES = 512
_NO_LINES = {
    b"\x1f\x8b": "a gzip file",
    b"\x28\xb5\x2f\xfd": "a Zstandard file",
    b"PK\x03\x04": "a ZIP file",
    b"ARROW1": "an Arrow file",
    b"PARE": "an encrypted Parquet file",
    b"version https://git-lfs": "a Git LFS pointer, whose file was not fetched",
}
_SIGNATURES = {
    **_NO_LINES,
    b"{": "JSON, perhaps JSON Lines",
    b"[": "JSON",
    b"<": "HTML or XML",
}


def other_format(file: BinaryIO) -> str | None:
    """A description of the format; None if the file starts and ends like Parquet."""
    size = file.seek(0, 2)
    file.seek(max(0, size - len(_PARQUET)))
    tail = file.read()
    file.seek(0)
    head = file.read(_HEAD_BYTES)
    if head.startswith(_PARQUET):
        return None if tail == _PARQUET and size > len(_PARQUET) else "it starts like one but is truncated"
    return _described(head)


def no_lines(head: bytes) -> str | None:
    """A description of the format of a file that should have lines of text; None if it may have."""
    known = {**_NO_LINES, _PARQUET: "a Parquet file"}
    return next((f"it looks like {name}" for signature, name in known.items() if head.startswith(signature)), None)


def _described(head: bytes) -> str:
    if not head:
        return "it is empty"
    for signature, name in _SIGNATURES.items():
        if head.lstrip(b" \r\n\t\xef\xbb\xbf").startswith(signature):
            return f"it looks like {name}"
    return "it looks like text, perhaps CSV" if _is_text(head) else "it does not start like one"


def _is_text(head: bytes) -> bool:
    try:
        return head[:-4].decode().isprintable() or b"\n" in head and b"\0" not in head
    except UnicodeDecodeError:
        return False
