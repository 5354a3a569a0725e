"""Check that a dataset that keeps each text once has no text twice, and left out no row whose text is not there.

Memory is bounded: digests are sorted on disk.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import accumulate

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from shardsift.fleet.process.wording import counted
from shardsift.fleet.run.receipt import Receipt
from shardsift.fleet.storage.open_output import Published, open_output
from shardsift.fleet.storage.parquet import RowGroups
from shardsift.fleet.storage.scratch import scratch_folder
from shardsift.producer.publishing.unique import TextsOnDisk, add_kept_texts, is_first
from shardsift.producer.verify.verification import Fault

_KEPT, _LEFT_OUT = range(2)  # marks
Integers = npt.NDArray[np.int64]


class EqualTexts:
    """A check of a dataset that keeps each text once. Several threads may check shards at once.

    A row that passes the filter may be left out only if an earlier row has its text.
    """

    def __init__(self, published: Published, texts: TextsOnDisk) -> None:
        self._published = published
        self._texts = texts
        self._starts = [0, *accumulate(receipt.rows_in for receipt in published.receipts)]
        self._numbers = {receipt.shard: number for number, receipt in enumerate(published.receipts)}
        # In a dataset of several runs, the kept row of a text is in the earliest run, not in the first shard.
        self._after_all = self._starts[-1] if published.runs else 0
        self._left_out: dict[int, int] = {}  # left-out rows by shard number, for shards compared with the input

    def chosen(self, receipt: Receipt, data: RowGroups, digests: pa.ChunkedArray) -> Callable[[Integers], Integers]:
        """Return a function that takes the rows that pass the filter, and returns the rows that the data file has.

        The function also collects the rows that the data file lacks. It identifies rows by their numbers in the shard.
        `digests` has a digest of the text of each row of the shard.
        """
        row_column = self._published.spec.row_columns[1]
        here = data.table(receipt.kept, [row_column])[row_column].to_numpy() - receipt.first_row
        number = self._numbers[receipt.shard]
        self._left_out[number] = 0

        def chosen(passed: Integers) -> Integers:
            is_here = np.isin(passed, here)
            left_out = passed[~is_here]
            of_these = digests.take(pa.array(left_out)).combine_chunks()
            self._texts.add(of_these, self._after_all + self._starts[number] + left_out, _LEFT_OUT)
            self._left_out[number] += len(left_out)
            return passed[is_here]

        return chosen

    def faults(self) -> Iterator[Fault]:
        """Yield the faults of all shards. Call it once, and only if no shard has other faults."""
        receipts, spec = self._published.receipts, self._published.spec
        output = open_output(self._published.uri, self._published.run_id)
        add_kept_texts(self._texts, output, spec, receipts, lambda receipt: _KEPT)
        twice, lost = Counter[int](), Counter[int]()
        for rows in self._texts.in_parts():
            first = is_first(rows)
            for found, wrong in (
                (twice, ~first & (rows["mark"] == _KEPT)),
                (lost, first & (rows["mark"] == _LEFT_OUT)),
            ):
                places = rows["place"][wrong] % max(1, self._starts[-1])
                found.update((np.searchsorted(self._starts, places, side="right") - 1).tolist())
        for number, receipt in enumerate(receipts):
            said = receipt.duplicates or 0
            left_out = self._left_out.get(number, said)
            if twice[number]:
                yield _fault(receipt, f"has {counted(twice[number], 'row')} whose text an earlier row has")
            if lost[number]:
                yield _fault(receipt, f"lacks {counted(lost[number], 'row')} whose text no earlier row has")
            if left_out != said:
                lacks = f"lacks {counted(left_out, 'row')} that the filter keeps"
                yield _fault(receipt, f"{lacks}, and its receipt names {counted(said, 'duplicate')}")


def _fault(receipt: Receipt, problem: str) -> Fault:
    return Fault(path=receipt.data.path, problem=problem)


@contextmanager
def equal_texts(published: Published) -> Iterator[EqualTexts | None]:
    """Yield an EqualTexts, or None if the run does not keep each text once."""
    if not published.spec.unique:
        yield None
        return
    with scratch_folder(None) as folder, ExitStack() as files:
        yield EqualTexts(published, TextsOnDisk(folder, files))
