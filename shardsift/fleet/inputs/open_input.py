"""List the input files that a path, folder, glob or fsspec URL names, and open a file by the format of its ending."""

import glob
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from io import BytesIO
from typing import Any

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
from fsspec.implementations.local import LocalFileSystem

from shardsift.fleet.errors import ShardError, UsageError
from shardsift.fleet.inputs.columns import JSON, ColumnTypes, no_such_field, seen_names
from shardsift.fleet.inputs.csv_file import CsvFile
from shardsift.fleet.inputs.folder_columns import WithFolderColumns
from shardsift.fleet.inputs.formats import CSV_LAYOUT, ENDINGS, ending_of, format_name, has_footer
from shardsift.fleet.inputs.input_file import InputFile
from shardsift.fleet.inputs.json_lines import JsonLines
from shardsift.fleet.inputs.line_blocks import BLOCK_BYTES, LineRows
from shardsift.fleet.inputs.parquet_file import open_parquet_input
from shardsift.fleet.inputs.tables import refuse_tables
from shardsift.fleet.run.spec import RunSpec
from shardsift.fleet.storage.errors import did_you_mean, translated
from shardsift.fleet.storage.hub_files import filesystem_of

_LINES: dict[str, type[LineRows]] = {"JSON Lines": JsonLines, "CSV": CsvFile}
_READ_AHEAD_BYTES = 32 << 20  # JSON Lines and CSV are read in order
# Columns of JSON Lines and CSV come from a sample: the first rows of all files, or of this many files evenly chosen.
_MOST_SAMPLED = 256
_SAMPLE_BYTES, _LEAST_SAMPLE_BYTES = 16 << 20, 128 << 10  # decompressed: of all files together, at least of each
_SAMPLE_THREADS = 16
_GLOB = set("*?[")
_OFTEN_METADATA = ".json"  # also the ending of metadata files, such as `dataset_info.json`
_BESIDE_DATA = ("readme", "license", "checksums", "md5sum", "sha1sum", "sha256sum", "sha512sum")
_NO_DATA = (".md", ".json", ".md5", ".sha1", ".sha256", ".sha512", ".crc")


@contextmanager
def open_input(
    uri: str, columns: ColumnTypes | None = None, *, only: bool = False, first_row: int = 0, **part: int
) -> Iterator[InputFile]:
    """Open a file for streaming. A file with an unknown ending counts as Parquet.

    JSON Lines and CSV: reads `columns`. If it is None, reads the columns in the first rows. Other columns are left out;
    `batches` notes them in a NotedRows, unless `only` says that the user chose the columns. `part` may have
    `read_bytes`, the size of each read, and for JSON Lines that are not compressed `first_byte`: reading starts at the
    line after it.

    Parquet: reads all columns, those in `columns` first, starting at `first_row`.

    Raises ShardError if the file is missing or broken, and TransientError if the network fails.
    """
    if has_footer(uri):
        with open_parquet_input(uri, columns, first_row) as file:
            yield file
    elif columns is None or seen_names(columns):
        yield _opened(uri, columns_of_lines([uri], columns), only=only)
    else:
        yield _opened(uri, columns, only=only, **part)


def column_in(content: bytes, uri: str, name: str) -> pa.ChunkedArray:
    """Read a column of a file whose content is in memory. Values of JSON Lines and CSV are texts.

    Raises UsageError if there is no such column, and ShardError or Arrow's errors if the file is broken.
    """
    if has_footer(uri):
        parquet = pq.ParquetFile(pa.BufferReader(content))
        if name not in parquet.schema_arrow.names:
            raise no_such_field(name, parquet.schema_arrow.names, uri)
        return parquet.read([name], use_threads=False)[name]
    file = _LINES[format_name(uri)](partial(BytesIO, content), uri, ((name, JSON),), only=True)
    return pa.Table.from_batches(file.batches(), file.schema)[name]


def columns_of_lines(uris: Sequence[str], chosen: ColumnTypes | None = None) -> ColumnTypes:
    """Find the names and types of columns from a sample of JSON Lines or CSV files. Deterministic.

    If `chosen` is given, finds only the types that it lacks, and raises UsageError if a chosen column does not exist.
    Skips files that cannot be read. If it skips all, raises ShardError, unless they are JSON Lines and `chosen` has
    every type.
    """
    kind = _LINES[format_name(uris[0])]
    files = min(len(uris), _MOST_SAMPLED)
    sampled = [uris[index * (len(uris) - 1) // max(1, files - 1)] for index in range(files)]
    sample_bytes = max(_LEAST_SAMPLE_BYTES, _SAMPLE_BYTES // files)

    def sample_of(uri: str) -> Any:
        try:
            with translated(f"Reading {uri}"):
                return _opened(uri, (), read_bytes=sample_bytes).sample(sample_bytes)
        except ShardError as error:
            if error.of_machine:  # another machine would find other columns
                raise
            return error

    with ThreadPoolExecutor(_SAMPLE_THREADS) as pool:
        found = list(pool.map(sample_of, sampled))
    errors = [one for one in found if isinstance(one, ShardError)]
    if len(errors) == files:
        if chosen is not None and not seen_names(chosen) and kind is JsonLines:
            return chosen
        raise errors[0]
    seen = dict(kind.columns_of([one for one in found if not isinstance(one, ShardError)]))
    if chosen is None:
        return tuple(seen.items())
    for name in dict(chosen):
        if name not in seen:
            where = uris[0] if files == 1 else f"{files:,} files"
            raise no_such_field(name, seen, where, hint="" if kind is JsonLines else CSV_LAYOUT)
    return tuple((name, kind or seen[name]) for name, kind in chosen)


def _opened(uri: str, columns: ColumnTypes, *, read_bytes: int = _READ_AHEAD_BYTES, **how: Any) -> LineRows:
    with translated(f"Opening {uri}"):
        filesystem, path = filesystem_of(uri)
        opened = partial(filesystem.open, path, "rb", block_size=read_bytes)
    return _LINES[format_name(uri)](opened, uri, columns, block_bytes=min(BLOCK_BYTES, read_bytes), **how)


@contextmanager
def open_shard(uri: str, spec: RunSpec, **part: int) -> Iterator[InputFile]:
    """Open an input file with the columns of the run. `part` has arguments of `open_input`, such as `first_row`."""
    own = tuple(column for column in spec.columns if column[0] not in spec.folder_columns)
    with open_input(uri, own, only=spec.only_columns, **part) as file:
        yield WithFolderColumns(file, spec.folder_columns, uri) if spec.folder_columns else file


@dataclass(frozen=True, kw_only=True)
class Listing:
    """Input files in name order. The names of their shards are relative to the folder `root`."""

    filesystem: fsspec.AbstractFileSystem
    root: str
    files: tuple[dict[str, Any], ...]  # as the filesystem's `info` describes them
    left_out: tuple[str, ...]  # other files that may be data, with an unknown ending or a leading _

    @property
    def uris(self) -> list[str]:
        return [self.filesystem.unstrip_protocol(info["name"]) for info in self.files]


def list_files(uri: str, *, shown_as: str | None = None, option: str = "--input") -> Listing:
    """List the files that a URI names. For a folder or glob, list the files with the ending of an input format.

    Skips names that begin with a dot, or with `_` like Spark's own files, unless the URI itself has such a name. Skips
    files with the ending .json beside other input files, because they usually describe the data.

    In error messages, `option` is the user's option, and `shown_as` replaces the URI. Raises UsageError if there are no
    files or files of several formats, or if they belong to a table, such as a Delta table, or to an unfinished write.
    Raises fsspec's errors for an unusable URL.
    """
    shown = uri if shown_as is None else shown_as
    if not shown:
        raise UsageError(f"{option} is empty: is a shell variable unset? Name a file, folder, glob or URL.")
    with translated(f"Listing {shown}"):
        filesystem, path = filesystem_of(uri)
        root = _root(path, filesystem)
        infos = _infos(filesystem, path, root)
        left_out: list[str] = []
        found = sorted(_input_files(filesystem, infos, path, root, left_out), key=lambda info: str(info["name"]))
        is_whole = path == root  # a folder
        refuse_tables(filesystem, root, [str(info["name"]) for info in found], infos if is_whole else ())
    others = tuple(sorted(name.removeprefix(root).strip("/") for name in left_out))
    if not found:
        marked = next((f" {name} begins with _: name it, if it is data." for name in others if is_marked(name)), "")
        raise UsageError(
            f"No input files at {shown}. Give {option} a file, a folder or a glob of files whose names end in {ENDINGS}."
            f"{marked}{did_you_mean(_folder(shown))}"
        )
    files = tuple(info for info in found if not str(info["name"]).lower().endswith(_OFTEN_METADATA)) or tuple(found)
    _refuse_several_formats([str(info["name"]) for info in files], shown, option)
    return Listing(filesystem=filesystem, root=root, files=files, left_out=others)


def _root(path: str, filesystem: fsspec.AbstractFileSystem) -> str:
    """Return the folder to which shard names are relative.

    It is a Hub dataset's data/ folder if the path goes through one, otherwise the last folder before any wildcard. On a
    local disk, `*`, `?` and `[` in the name of an existing file or folder are not wildcards.
    """
    parts = path.split("/")
    is_local = isinstance(filesystem, LocalFileSystem)
    fixed = next(
        (
            index
            for index, part in enumerate(parts)
            if _GLOB & set(part) and not (is_local and filesystem.exists("/".join(parts[: index + 1])))
        ),
        len(parts),
    )
    if fixed == len(parts) and not filesystem.isdir(path):
        fixed -= 1
    repo_parts = 3 if parts[0] == "datasets" else 2
    if filesystem.protocol in ("hf", ("hf",)) and "data" in parts[repo_parts:fixed]:
        fixed = parts.index("data", repo_parts) + 1
    return "/".join(parts[:fixed])


def _infos(filesystem: fsspec.AbstractFileSystem, path: str, root: str) -> dict[str, dict[str, Any]]:
    below = path.removeprefix(root)
    if _GLOB & set(below) and not (isinstance(filesystem, LocalFileSystem) and filesystem.exists(path)):
        return dict(filesystem.glob(glob.escape(root) + below, detail=True))
    if filesystem.isdir(path):
        return dict(filesystem.find(path, detail=True))
    try:
        return {path: filesystem.info(path)}
    except FileNotFoundError as error:
        if error.errno is None:  # from the Hub, with its own message
            raise
        return {}


def _input_files(
    filesystem: fsspec.AbstractFileSystem,
    infos: Mapping[str, dict[str, Any]],
    path: str,
    root: str,
    left_out: list[str],
) -> Iterator[dict[str, Any]]:
    if infos.keys() == {path}:  # a single Parquet file may have any ending
        yield from infos.values()
        return
    named = path.removeprefix(root)
    for info in infos.values():
        name = str(info["name"])
        below = name.removeprefix(root)
        if _is_hidden(below) and not _is_hidden(named):
            continue
        if is_marked(below) and not is_marked(named):
            left_out += [name] if ending_of(name) else []
            continue
        if ending_of(name) and info.get("islink"):
            info = filesystem.info(name)  # of the link's target
        if ending_of(name) and info["type"] == "file":
            yield info
        elif info["type"] != "directory" and not _stands_beside_data(name):
            left_out.append(name)  # may be a link to a folder, which a listing does not follow


def _stands_beside_data(name: str) -> bool:
    last = name.rpartition("/")[2].lower()
    return last.startswith(_BESIDE_DATA) or last.endswith(_NO_DATA)


def _refuse_several_formats(names: list[str], shown: str, option: str) -> None:
    counts = Counter(format_name(name) for name in names if ending_of(name))
    if len(counts) > 1:
        formats = ", ".join(f"{count:,} {kind}" for kind, count in counts.items())
        ending = next(filter(None, map(ending_of, names)))
        raise UsageError(
            f"{shown} has files of several formats: {formats}. Choose one with a glob, like "
            f"{option} '{_folder(shown)}/**/*{ending}', or name each with one of its own."
        )


def _folder(uri: str) -> str:
    parts = uri.rstrip("/").split("/")
    return "/".join(parts[: next((index for index, part in enumerate(parts) if _GLOB & set(part)), len(parts))])


def _is_hidden(path: str) -> bool:
    return any(part.startswith(".") for part in path.split("/"))


def is_marked(path: str) -> bool:
    """Return whether Spark would skip the path, because a name in it begins with `_`.

    False for `_key=value`, which is a folder of data.
    """
    return any(part.startswith("_") and "=" not in part for part in path.split("/"))
