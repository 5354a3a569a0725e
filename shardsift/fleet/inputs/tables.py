"""Refuse the files of a Delta, Iceberg, Hudi or DuckLake table, or of a write that has not finished.

Some of the files may hold rows that were since deleted or replaced, or that were never committed. Only a log or
catalog, which we do not read, says which files count.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress

import fsspec

from shardsift.fleet.errors import UsageError

_HUB_REPO_PARTS = 3  # datasets/<user>/<name>
_MARKS = "_started_", "_committed_"  # Databricks writes both with the same number
_EXPORT = "Write the table to Parquet with its own reader, and name that as the input"
_ICEBERG = re.compile(r"(v\d+|\d+-.*?)(\.gz)?\.metadata\.json(\.gz)?")
_DUCKLAKE = re.compile(r"ducklake-[0-9a-f]{8}-")
_LOGS = {  # name of the log → kind of table, and how to export it
    "_delta_log": ("a Delta table", "with DuckDB: COPY (FROM delta_scan('{0}')) TO 'table.parquet'"),
    ".hoodie": ("a Hudi table", "with Spark: spark.read.format('hudi').load('{0}').write.parquet('table')"),
    "metadata": ("an Iceberg table", "with DuckDB: COPY (FROM iceberg_scan('{0}')) TO 'table.parquet'"),
    "_spark_metadata": ("a Spark stream", "with Spark: spark.read.parquet('{0}').write.parquet('table')"),
}


def refuse_tables(
    filesystem: fsspec.AbstractFileSystem, root: str, files: Sequence[str], listed: Iterable[str]
) -> None:
    """Raise UsageError if `files` belong to a table, such as a Delta table, or to a write that has not finished.

    `listed` has all paths below the folder `root`. If it is empty, this function lists the folders itself.
    """
    protocols = {filesystem.protocol} if isinstance(filesystem.protocol, str) else {*filesystem.protocol}
    if protocols & {"http", "https"}:  # no folders to look into
        return
    below = defaultdict[str, set[str]](set)
    for path in listed:
        if "/_" in path or "/.hoodie/" in path or ".metadata.json" in path:
            for folder, name in _steps(path):
                below[folder].add(name)

    def names_in(folder: str) -> set[str]:
        if listed and folder in below and f"{folder}/".startswith(f"{root}/"):
            return below[folder]
        with suppress(FileNotFoundError, NotADirectoryError, PermissionError, NotImplementedError):
            return {str(path).rstrip("/").rpartition("/")[2] for path in filesystem.ls(folder or "/", detail=False)}
        return set()

    of_files = {file.rpartition("/")[0] for file in files}
    folders = {folder for one in of_files for folder, _ in _steps(f"{one}/")}
    if listed:
        folders = {folder for folder in folders if folder in below or f"{root}/".startswith(f"{folder}/")}
    least = _HUB_REPO_PARTS if "hf" in protocols else 1
    written = {_written(folder) for folder in of_files}
    for folder in sorted(folder for folder in folders if folder.count("/") + 1 >= least):
        if found := _of_table(folder, names_in) or (_unfinished(names_in(folder)) if folder in written else None):
            shown = folder if "file" in protocols else filesystem.unstrip_protocol(folder)
            raise UsageError(found.replace("{0}", shown))
    if lake := next((file for file in files if _DUCKLAKE.match(file.rpartition("/")[2])), None):
        raise UsageError(
            f"{lake} is of a DuckLake, whose catalog says which files and rows count. {_EXPORT}, with DuckDB."
        )


def _steps(path: str) -> Iterator[tuple[str, str]]:
    parts = path.split("/")
    return (("/".join(parts[:depth]), parts[depth]) for depth in range(1, len(parts)))


def _written(folder: str) -> str:
    while "=" in folder.rpartition("/")[2]:
        folder = folder.rpartition("/")[0]
    return folder


def _of_table(folder: str, names_in: Callable[[str], set[str]]) -> str | None:
    """Return an error message if the folder has the log of a table, such as `_delta_log`, otherwise None.

    `names_in` lists a folder. In the message, `{0}` stands for the folder.
    """
    names = names_in(folder)
    for log, (table, advice) in _LOGS.items():
        if log not in names:
            continue
        if log != "metadata" or any(map(_ICEBERG.fullmatch, names_in(f"{folder}/{log}"))):
            return (
                f"{{0}} is {table}: its {log} says which files and rows count, and the files alone also have those that were "
                f"removed or replaced. {_EXPORT}; {advice}."
            )
    return None


def _unfinished(names: set[str]) -> str | None:
    started, committed = ({name.removeprefix(mark) for name in names if name.startswith(mark)} for mark in _MARKS)
    marks = [f"{_MARKS[0]}{number}" for number in sorted(started - committed)]
    if "_temporary" in names and "_SUCCESS" not in names:
        marks.append("_temporary")
    if not marks:
        return None
    return f"{{0}} has files of a write that is not finished: {marks[0]} is there. Let Spark finish it, or write the data again."
