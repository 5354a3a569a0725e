"""The result of `producer verify`, as text and as JSON."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass

from shardsift.fleet.process.wording import counted, duplicates_line, first_of
from shardsift.fleet.run.spec import data_path_of
from shardsift.fleet.storage.inspection import lines_of

_LINES = 20
_CHECKED = "sha256 of every file, manifest, schemas, counts, each row once, scores"
_CHECKED_WITH_SOURCE = ", every kept and dropped row against the input"


@dataclass(frozen=True, kw_only=True)
class Fault:
    """A problem with one path in the output. A fault of the whole run has the path `manifest.parquet`."""

    path: str
    problem: str
    is_mendable: bool = True  # whether the command that made the run repairs it; False for foreign files

    def __str__(self) -> str:
        return f"{self.path}: {self.problem}"


@dataclass(frozen=True, kw_only=True, repr=False)
class Verification:
    """The result for a whole dataset. Row counts are the manifest's totals. Without a manifest, all counts are 0.

    `str()` of it is what `producer verify` prints.
    """

    uri: str
    run_id: str | None  # None if the manifest is lost
    shards: int = 0
    left_out: tuple[str, ...] = ()  # failed shards that the published run does not contain
    files: int = 0
    size_bytes: int = 0
    rows_in: int = 0
    rows_kept: int = 0
    rows_dropped: int = 0
    rows_errored: int = 0
    duplicates: int = 0  # dropped rows whose text an earlier row has
    compared_with_source: bool = False
    not_compared: tuple[str, ...] = ()  # shards whose file is not in the source
    unread_lists: tuple[str, ...] = ()  # drop lists whose file was not named
    edited: tuple[str, ...] = ()  # a note if a person has edited the card
    faults: tuple[Fault, ...]

    def __repr__(self) -> str:
        return (
            f"<Verification {self._verdict}: {counted(self.shards, 'shard')}, {counted(self.files, 'file')}, "
            f"{self.rows_in:,} rows in, {self.rows_kept:,} kept; {self.uri}>"
        )

    def __str__(self) -> str:
        return "\n".join(self.lines())

    @property
    def is_sound(self) -> bool:
        return not self.faults

    @property
    def _verdict(self) -> str:
        return "sound" if self.is_sound else f"damaged, {counted(len(self.faults), 'fault')}"

    def as_json(self) -> dict[str, object]:
        return asdict(self) | {"sound": self.is_sound}

    def lines(self) -> Iterator[str]:
        yield f"run      {self.run_id or 'unknown'}"
        yield f"output   {self.uri}"
        if self.shards:
            yield from self._lines_of_manifest()
        else:
            yield "checked  the manifest only: it says which files there should be"
        if self.not_compared:
            shards, named = counted(len(self.not_compared), "shard"), first_of(self.not_compared, _LINES)
            yield f"{shards} not compared with the input, because --input names no such files: {named}"
        for name in self.unread_lists:
            yield f"not checked whether rows are in the drop list {name}: add --drop-list {name}"
        yield from self.edited
        yield from lines_of(self.faults, limit=_LINES)
        paths = {data_path_of(shard) for shard in self.left_out}
        if paths:
            yield f"After fixing what made {counted(len(paths), 'shard')} fail, run: producer retry {self.run_id}"
        if any(fault.is_mendable and fault.path not in paths for fault in self.faults):
            yield "To repair it, run the command that started the run again, with --verify added."
        if not all(fault.is_mendable for fault in self.faults):
            yield "Files that are not of this run are left alone. Remove them yourself."
        yield "sound" if self.is_sound else f"damaged: {counted(len(self.faults), 'fault')}"

    def _lines_of_manifest(self) -> Iterator[str]:
        yield f"shards   {self.shards:,}" + (
            f", published without {len(self.left_out):,} more" if self.left_out else ""
        )
        yield f"files    {self.files:,}, {self.size_bytes:,} bytes"
        yield (
            f"rows     {self.rows_in:,} in, {self.rows_kept:,} kept, {self.rows_dropped:,} dropped"
            f"{duplicates_line(self.duplicates)}, {self.rows_errored:,} errored"
        )
        yield f"checked  {_CHECKED}" + (_CHECKED_WITH_SOURCE if self.compared_with_source else "")
