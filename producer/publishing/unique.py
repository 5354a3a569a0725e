"""Keep each text once: find kept rows that have the text of an earlier row, and rewrite the data files without them.

The first row of a text is never left out. So the result is the same however often this is done, and whichever files are
rewritten already. Memory is bounded, because rows are sorted in parts on disk.

A duplicate is gone from the data, so its text stays there only as long as the kept row does. So each receipt says which
texts all shards together had when its shard lost rows (`unique_texts`). If some of these texts are gone, because another
shard was scored again with other content or has failed, the shard is scored again.
"""

import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import accumulate, chain, groupby
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from shardsift.fleet.errors import OutputDamaged, ShardError
from shardsift.fleet.ledger import Ledger
from shardsift.fleet.process.wording import counted
from shardsift.fleet.run.output_columns import TEXT_DIGEST
from shardsift.fleet.run.receipt import Receipt, Receipts
from shardsift.fleet.run.spec import RunSpec
from shardsift.fleet.storage.errors import translated
from shardsift.fleet.storage.output import Output
from shardsift.fleet.storage.parquet import RowGroups
from shardsift.fleet.storage.scratch import scratch_folder
from shardsift.producer.publishing.merge import AT_ONCE, DATA, merged_file, move_rows, readable

_PARTS = 128  # files on disk; one of them at a time is sorted in memory
_READERS = 4  # threads
_ROW = np.dtype([("high", "<u8"), ("low", "<u8"), ("place", "<i8"), ("mark", "u1")])  # high and low are the digest
NEW, SETTLED, EARLIER = range(3)  # marks of rows: in new shards, in shards looked at before, in earlier runs

Rows = npt.NDArray[Any]  # of the type `_ROW`
Flags = npt.NDArray[np.bool_]
Integers = npt.NDArray[np.int64]
logger = logging.getLogger(__name__)


def remove_duplicates(
    ledger: Ledger,
    spec: RunSpec,
    output: Output,
    receipts: Receipts,
    earlier: Sequence[Receipt] = (),
    *,
    is_extended: bool = False,
) -> bool:
    """Leave out the kept rows that have the text of an earlier row. Returns whether a receipt has changed. May run twice.

    `receipts` are those of all done shards of the run, in order. The rows of `earlier`, which other runs have published in
    this output, come before them and are never left out.

    Raises OutputDamaged for shards whose files are damaged. Also raises it for shards that have lost rows as duplicates, if
    texts of that time are gone, because another shard was scored again with other content or has failed.
    This is not checked if `is_extended`, which says that later runs have extended the dataset: a receipt names the set of
    all texts at its time, without the texts of later runs, so the sets cannot be compared.
    """
    if _are_settled(receipts):
        return False
    output.save(readable(receipts))  # so that they can be read: the Hub serves only committed files
    ends = [*accumulate(receipt.rows_in for receipt in chain(earlier, receipts))]
    with scratch_folder(None) as folder, translated("Looking for equal texts"):
        duplicates = np.memmap(folder / "duplicates", np.bool_, "w+", shape=(ends[-1] + 1,))  # by place
        texts = _find(output, spec, chain(earlier, receipts), folder, duplicates)
        if not is_extended:
            _refuse_lost(receipts, texts)

        def settle(number: int) -> bool:
            receipt, end = receipts[number], ends[len(earlier) + number]
            return _settle(ledger, spec, output, receipt, duplicates[end - receipt.rows_in : end], str(texts.all))

        # Before any file changes, the receipts of shards that were looked at before are updated to name the current texts.
        # New shards come last: until all of them are recorded, each finalizer looks again.
        is_new = [receipt.duplicates is None for receipt in receipts]
        settled, new = ([number for number, one in enumerate(is_new) if one is wanted] for wanted in (False, True))
        none = np.zeros(0, np.bool_)
        changed = [_settle(ledger, spec, output, receipts[number], none, str(texts.all)) for number in settled]
        with ThreadPoolExecutor(AT_ONCE, "unique") as pool:
            for numbers in (settled, new):
                changed += pool.map(settle, numbers)  # the first error ends it
    return any(changed)


def _are_settled(receipts: Receipts) -> bool:
    """Return whether these shards were all compared with each other before, and have no duplicates left."""
    found = {receipt.unique_texts for receipt in receipts}
    kept = sum(receipt.rows_kept for receipt in receipts)
    return len(found) == 1 and _TextSet.rows_of(found.pop()) == kept


def _settle(
    ledger: Ledger, spec: RunSpec, output: Output, receipt: Receipt, duplicates: Flags, unique_texts: str
) -> bool:
    """Rewrite a shard's data file without its duplicates, and record the new receipt. Returns whether it has changed."""
    number = int(np.count_nonzero(duplicates))
    now = replace(receipt, duplicates=(receipt.duplicates or 0) + number, unique_texts=unique_texts)
    if number:
        row_column = spec.row_columns[1]

        def without_duplicates(table: pa.Table) -> pa.Table:
            rows = table[row_column].to_numpy() - receipt.first_row
            return table.take(pa.array(np.flatnonzero(~duplicates[rows])))

        file = merged_file(output, spec, [receipt], DATA, chosen=without_duplicates)
        if file.rows != receipt.rows_kept - number:
            raise OutputDamaged({receipt.shard: f"{receipt.data.path} could not be read twice with the same rows"})
        dropped = receipt.rows_dropped + number
        now = replace(now, rows_kept=file.rows, rows_dropped=dropped, data=file, data_first_row=0, own_data_bytes=0)
        what = f"left out {counted(number, 'row')} of {receipt.shard} whose text an earlier row has"
        logger.info("Run %s: %s", receipt.run_id, what, extra={"run_id": receipt.run_id})
    if now == receipt:
        return False
    move_rows(ledger, output, [receipt], [now])
    return True


# The set of all texts.


@dataclass
class _TextSet:
    """A set of texts, represented by a number of rows and a sum of digests.

    `rows` counts the first row of each text, unless that row is in an earlier run. Sets with equal `str` are equal. It does
    not matter which shards have the texts.
    """

    rows: int = 0
    high: int = 0
    low: int = 0

    def add(self, rows: Rows) -> None:
        """Add the texts of rows that are sorted by digest and place."""
        first = rows[is_first(rows)]
        self.rows += int(np.count_nonzero(first["mark"] != EARLIER))
        self.high += int(first["high"].sum())
        self.low += int(first["low"].sum())

    def __str__(self) -> str:
        return f"{self.rows}-{self.high % (1 << 64):016x}{self.low % (1 << 64):016x}"

    @staticmethod
    def rows_of(text: str) -> int | None:
        return int(text.partition("-")[0]) if text else None


@dataclass(frozen=True)
class _Found:
    all: _TextSet
    settled: _TextSet  # of shards that were looked at before, and of earlier runs


def _find(output: Output, spec: RunSpec, receipts: Iterable[Receipt], folder: Path, duplicates: Flags) -> _Found:
    """Set the elements of `duplicates` at the places of duplicate rows to True.

    Returns the set of all texts, and the set without the texts that only new shards have. A shard is new if its duplicates
    were never looked for.
    """
    run_id, found = spec.run_id, _Found(_TextSet(), _TextSet())

    def mark(receipt: Receipt) -> int:
        if receipt.run_id != run_id:
            return EARLIER
        return NEW if receipt.duplicates is None else SETTLED

    with ExitStack() as files:
        texts = TextsOnDisk(folder, files)
        add_kept_texts(texts, output, spec, receipts, mark)
        for rows in texts.in_parts():
            duplicates[rows["place"][~is_first(rows) & (rows["mark"] != EARLIER)]] = True
            found.all.add(rows)
            found.settled.add(rows[rows["mark"] != NEW])
    return found


def _refuse_lost(receipts: Receipts, found: _Found) -> None:
    """Raise OutputDamaged for shards that have lost rows as duplicates, if texts of that time are gone.

    A receipt names the set of all texts of that time. No text is gone if this is one of the two sets that `_find` returns.
    """
    there = {str(found.all), str(found.settled)}
    lost = [receipt.shard for receipt in receipts if receipt.duplicates and receipt.unique_texts not in there]
    if lost:
        why = "it lacks rows because of equal texts in shards that have changed or failed since"
        raise OutputDamaged(dict.fromkeys(lost, why))


# Read the texts of kept rows, and sort them on disk.


class TextsOnDisk:
    """Rows with the digests of their texts, in files by the first bits of the digest. Takes 25 bytes a row.

    `files` closes the files, which are in `folder`. Each row has a place, a number that orders
    the rows, and a mark, a number that the caller chooses.
    """

    def __init__(self, folder: Path, files: ExitStack) -> None:
        self._files = [files.enter_context((folder / f"texts-{part}").open("w+b")) for part in range(_PARTS)]
        self._writing = threading.Lock()

    def add(self, digests: pa.FixedSizeBinaryArray, places: Integers, mark: int) -> None:
        """Add rows. No digest may be null. Several threads may add rows at once, in any order."""
        rows = np.empty(len(places), _ROW)
        if len(rows):
            words = np.frombuffer(digests.buffers()[1], "<u8")[2 * digests.offset :][: 2 * len(rows)]
            rows["high"], rows["low"] = words[::2], words[1::2]
        rows["place"], rows["mark"] = places, mark
        part = rows["high"] // np.uint64((1 << 64) // _PARTS)
        rows = rows[np.argsort(part, kind="stable")]
        ends = np.cumsum(np.bincount(part.astype(np.int64), minlength=_PARTS))
        with self._writing:
            for file, some in zip(self._files, np.split(rows, ends[:-1]), strict=True):
                file.write(some.tobytes())

    def in_parts(self) -> Iterator[Rows]:
        """Yield all rows in arrays, sorted by digest and place. Rows of equal texts are in the same array."""
        for file in self._files:
            file.seek(0)
            rows = np.frombuffer(file.read(), _ROW)
            yield rows[np.lexsort((rows["place"], rows["low"], rows["high"]))]


def is_first(rows: Rows) -> Flags:
    """Return for each of these sorted rows whether it is the first with its text."""
    first = np.ones(len(rows), np.bool_)
    for half in ("high", "low"):
        values = rows[half]
        differs = values[1:] != values[:-1]
        first[1:] = differs if half == "high" else first[1:] | differs
    return first


def add_kept_texts(
    texts: TextsOnDisk, output: Output, spec: RunSpec, receipts: Iterable[Receipt], mark: Callable[[Receipt], int]
) -> None:
    """Add the kept rows of these shards. A row's place is its number among all rows that the shards have read, in order.

    `mark` gives the mark of a shard's rows. Reads two columns, and relies on the checksums of their pages. Raises
    OutputDamaged if a file is lost or damaged.
    """
    groups, start = list[tuple[int, Receipts]](), 0
    for _, found in groupby(receipts, key=lambda receipt: (receipt.data, receipt.scores)):
        shards = Receipts(found)
        groups.append((start, shards))
        start += sum(receipt.rows_in for receipt in shards)

    def add(group: tuple[int, Receipts]) -> None:
        start, shards = group
        for receipt, rows, digests in _kept_texts(output, spec, shards):
            texts.add(digests, start + rows, mark(receipt))
            start += receipt.rows_in

    with ThreadPoolExecutor(_READERS, "texts") as readers:
        for _ in readers.map(add, groups):  # the first error ends it
            pass


def _kept_texts(
    output: Output, spec: RunSpec, shards: Sequence[Receipt]
) -> Iterator[tuple[Receipt, Integers, pa.FixedSizeBinaryArray]]:
    """Yield each shard with the numbers of its kept rows in the shard, and the digests of their texts.

    All shards must be in one data file and one scores file. Raises OutputDamaged if one of these is lost or damaged.
    """
    first, row_column = shards[0], spec.row_columns[1]
    try:
        with (
            translated(f"Reading {first.data.path} and {first.scores.path} in {output.uri}"),
            output.open_file(first.data) as data,
            output.open_file(first.scores) as scores,
        ):
            data_groups, scores_groups = (
                RowGroups(pq.ParquetFile(file, page_checksum_verification=True)) for file in (data, scores)
            )
            for receipt in shards:
                rows = data_groups.table(receipt.kept, [row_column])[row_column].to_numpy() - receipt.first_row
                stored = scores_groups.table(receipt.scored, [TEXT_DIGEST.name])[TEXT_DIGEST.name].combine_chunks()
                digests = stored.take(pa.array(rows))
                is_whole = (len(rows), len(stored)) == (receipt.rows_kept, receipt.rows_in)
                if not is_whole or digests.null_count or np.any(np.diff(rows) <= 0):
                    raise ShardError(f"{first.data.path} or {first.scores.path} is not as it was written.")
                yield receipt, rows, digests
    except ShardError as error:
        if error.of_machine:  # the files may be sound
            raise
        raise OutputDamaged(dict.fromkeys((receipt.shard for receipt in shards), str(error))) from error
