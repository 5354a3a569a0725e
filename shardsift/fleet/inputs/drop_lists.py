"""Drop lists: find the rows whose value in a column is in a file, such as an opt-out list of domains, URLs or ids.

A value is compared as it is. If it is a URL, its host and the domains above it are also looked up, so `example.com` in
a list means all pages of `example.com` and its subdomains. A loaded list is one set in memory: about 110 MB for a
million domains.
"""

import hashlib
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from urllib.parse import unquote

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from shardsift.fleet.errors import ShardError, UsageError
from shardsift.fleet.inputs.formats import ENDINGS, ending_of
from shardsift.fleet.inputs.open_input import column_in
from shardsift.fleet.run.spec import DropList, RunSpec
from shardsift.fleet.storage.errors import translated
from shardsift.fleet.storage.hub_files import filesystem_of

_COMPRESSED = {b"\x1f\x8b": "gzip", b"\x28\xb5": "zstd"}  # by the first bytes
_LISTS_IN_USE = 2  # runs whose lists stay in memory: a worker may have shards of two


class LoadedList:
    def __init__(self, described: DropList, values: frozenset[str]) -> None:
        self.described = described
        self._values = values
        # The hosts whose spelling in the list differs from the compared form. All others are in `values`.
        self._hosts = frozenset(host for value in values if (host := _host_listed(value)) is not None)

    def rows_in(self, rows: pa.Table) -> npt.NDArray[np.int64]:
        """Return the indices of the rows whose value is in the list, ascending. Null is in no list."""
        values = enumerate(_texts(rows[self.described.column]))
        listed = [row for row, value in values if value is not None and self._has(value)]
        return np.array(listed, dtype=np.int64)

    def _has(self, value: str) -> bool:
        if value in self._values:
            return True
        host = host_of(value)
        while host:
            if host in self._values or host in self._hosts:
                return True
            _, _, parent = host.partition(".")
            host = parent if "." in parent else ""  # a list that has "com" does not mean all of .com
        return False


@lru_cache(maxsize=_LISTS_IN_USE)
def loaded_lists(lists: tuple[DropList, ...]) -> tuple[LoadedList, ...]:
    """Load a run's drop lists, and keep them in memory for its next shards.

    Raises ShardError if a file is missing or is not the one that the run was planned with. Raises TransientError if the
    network fails.
    """
    return tuple(_loaded(one) for one in lists)


def _loaded(described: DropList) -> LoadedList:
    content, sha256 = content_of(described.uri)
    if sha256 != described.sha256:
        raise ShardError(
            f"The drop list {described.uri} changed since the run was planned: its sha256 is {sha256}, not "
            f"{described.sha256}. Restore the file, then run `producer retry`. To use the new list: `producer refilter` "
            "once the run is published, or a run to another --output."
        )
    return LoadedList(described, _values(content, described.uri, described.field))


def described_list(uri: str, field: str | None, column: str) -> DropList:
    """Read a list, and describe it for a spec. `field` is the file's column that has the values; None for a text file.

    Raises UsageError if the file has no such values, ShardError if it is missing or broken, and TransientError if the
    network fails.
    """
    if field is None and ending_of(uri):
        raise UsageError(f"Name the column of the file that has the values, like --drop-list {uri}:domain={column}.")
    content, sha256 = content_of(uri)
    values = _values(content, uri, field)
    if not values:
        raise UsageError(f"--drop-list {uri}: there are no values in it.")
    return DropList(uri=uri, field=field, column=column, sha256=sha256, values=len(values))


def check_list_columns(spec: RunSpec, schema: pa.Schema) -> None:
    """Raise UsageError unless the input has the column of each drop list, with texts or integers."""
    for one in spec.drop_lists:
        option, names = f"--drop-list {one.option}", schema.names
        if one.column not in names:
            raise UsageError(f"{option}: the input has no column {one.column!r}; it has: {', '.join(names)}.")
        _check_type(schema.field(one.column).type, option)


def located(lists: Iterable[DropList], uris: Mapping[str, str]) -> tuple[tuple[DropList, ...], tuple[str, ...]]:
    """Find the files of published drop lists.

    `uris` maps the sha256 of each known file to its URI. A list whose file is not in `uris` is found only if it is on
    the Hub: the published URI of any other list is only a file name. Returns the lists that were found, with the URIs
    of their files, and the published URIs of the others.
    """
    places = [(one, uris.get(one.sha256, one.uri if one.uri.startswith("hf://") else None)) for one in lists]
    found = tuple(replace(one, uri=uri) for one, uri in places if uri is not None)
    return found, tuple(one.uri for one, uri in places if uri is None)


def content_of(uri: str) -> tuple[bytes, str]:
    """Read a whole file. Returns its content, and the sha256 of that content."""
    with translated(f"Reading the drop list {uri}"):
        filesystem, path = filesystem_of(uri)
        with filesystem.open(path, "rb") as file:
            content = file.read()
    return content, hashlib.sha256(content).hexdigest()


def _values(content: bytes, uri: str, field: str | None) -> frozenset[str]:
    with translated(f"Reading the drop list {uri}"):
        if field is None:
            return frozenset(_lines(content, uri))
        column = column_in(content, uri, field)
    _check_type(column.type, f"The column {field} of the drop list {uri}")
    return frozenset(text for value in _texts(column) if value is not None and (text := value.strip()))


def _lines(content: bytes, uri: str) -> Iterator[str]:
    if kind := _COMPRESSED.get(content[:2]):
        content = pa.CompressedInputStream(pa.BufferReader(content), kind).read()
    try:
        lines = content.decode("utf-8-sig").split("\n")
    except UnicodeDecodeError as error:
        raise UsageError(
            f"The drop list {uri} is not UTF-8. It is a text file with one value a line, or for FILE:COLUMN a file whose "
            f"name ends in {ENDINGS}."
        ) from error
    return (text for line in lines if (text := line.strip()))


def _check_type(kind: pa.DataType, what: str) -> None:
    plain = kind.value_type if pa.types.is_dictionary(kind) else kind
    if not (pa.types.is_integer(plain) or plain in (pa.string(), pa.large_string(), pa.string_view(), pa.null())):
        raise UsageError(f"{what}: values are texts or whole numbers, and this column has {kind}.")


def _texts(column: pa.ChunkedArray) -> Iterator[str | None]:
    return (value if value is None else str(value) for value in column.to_pylist())


# The host of a URL, in the form in which hosts are compared: small letters, ASCII, no port and no dot at the end.

_URL = re.compile(r"\s*(?:[a-z][a-z0-9+.-]*:)?//(?:[^/?#\\]*@)?(\[[^]/?#\\]*\]|[^/?#\\:\s]*)", re.IGNORECASE)
_HOST_IN_LIST = re.compile(r"(?:\*?\.)?(\[[^]/?#\\]*\]|[^/?#\\:@\s]+)")
_PLAIN_HOST = re.compile(r"[a-z0-9_-]+(?:\.[a-z0-9_-]+)*")
_MOST_CHARS = 1024  # a longer host is none; it would also take long to convert


def host_of(text: str) -> str:
    """Return the host of a URL in lower-case ASCII, without port or final dot. Empty if the text has none."""
    found = _URL.match(text)
    return _compared(found[1]) if found else ""


def _host_listed(value: str) -> str | None:
    """Return the host that a list's value stands for: `example.com` for `*.Example.com`.

    None if the value is not a host, or is already in the form that `host_of` returns.
    """
    if _PLAIN_HOST.fullmatch(value):
        return None
    found = _HOST_IN_LIST.fullmatch(value)
    return _compared(found[1]) or None if found else None


def _compared(host: str) -> str:
    if len(host) > _MOST_CHARS:
        return ""
    if _PLAIN_HOST.fullmatch(host):
        return host
    folded = unicodedata.normalize("NFKC", unquote(host)).lower().replace("。", ".").rstrip(".")
    labels = folded.split(".")
    return ".".join(one if one.isascii() else f"xn--{one.encode('punycode').decode()}" for one in labels)
