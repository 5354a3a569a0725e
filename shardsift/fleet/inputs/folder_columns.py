"""Columns from the names of an input file's folders, such as `year=2024`. Their values are text."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from urllib.parse import unquote

import pyarrow as pa

from shardsift.fleet.errors import ShardError
from shardsift.fleet.inputs.input_file import STEP_ROWS, BadRows, InputFile
from shardsift.fleet.run.spec import Shard

_NULL = "__HIVE_DEFAULT_PARTITION__"


def folder_values(uri: str) -> dict[str, str | None]:
    """Map columns to the values in the names of a file's folders: `year` to `2024` for the folder `year=2024`.

    A value is None for `__HIVE_DEFAULT_PARTITION__`, with which Hive writes null.
    """
    pairs = (folder.split("=", 1) for folder in uri.split("/")[:-1] if "=" in folder)
    return {unquote(name): None if value == _NULL else unquote(value) for name, value in pairs}


def renamed(shards: Iterable[Shard], folder_columns: Collection[str]) -> tuple[Shard, ...]:
    """Rename shards: `year=2024/a` becomes `year-2024/a` if `year` is one of the columns.

    With the old name, readers of the output would find the column twice: in the files, and in the names of folders.
    """

    def plain(folder: str) -> str:
        return folder.replace("=", "-") if unquote(folder.partition("=")[0]) in folder_columns else folder

    def name_of(shard: Shard) -> str:
        *folders, file = shard.name.split("/")
        return "/".join([*map(plain, folders), file])

    return tuple(replace(shard, name=name_of(shard)) for shard in shards) if folder_columns else tuple(shards)


class WithFolderColumns:
    """An InputFile with the values in its folder names as further columns. Bad rows have these values too."""

    def __init__(self, file: InputFile, names: Sequence[str], uri: str) -> None:
        found = folder_values(uri)
        for name in names:
            if name not in found:
                raise ShardError(f'{uri} is in no folder "{name}=…", of which --columns asks for the value.')
            if name in file.schema.names:
                raise ShardError(f'{uri} has a column "{name}" of its own, and the run reads that of its folder.')
        self._file = file
        self._values = {name: pa.scalar(found[name], pa.string()) for name in names}
        self.schema = pa.schema([*file.schema, *((name, pa.string()) for name in names)], metadata=file.schema.metadata)

    def batches(
        self,
        columns: Sequence[str] | None = None,
        *,
        bad: BadRows | None = None,
        most_rows: int = STEP_ROWS,
        use_threads: bool = True,
    ) -> Iterator[pa.RecordBatch]:
        names = self.schema.names if columns is None else columns
        own = [name for name in names if name not in self._values] or self._file.schema.names[:1]
        schema = pa.schema([self.schema.field(name) for name in names], metadata=self.schema.metadata)
        for batch in self._file.batches(own, bad=bad, most_rows=most_rows, use_threads=use_threads):
            arrays = (
                pa.repeat(self._values[name], len(batch)) if name in self._values else batch.column(name)
                for name in names
            )
            yield pa.RecordBatch.from_arrays(list(arrays), schema=schema)

    def count_rows(self, most: int | None = None) -> int:
        return self._file.count_rows(most)
