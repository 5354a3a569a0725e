"""Read single rows of a run's input again. `source_of` refuses a file that has changed since it was scored."""

from collections.abc import Collection, Iterable, Mapping, Sequence

import numpy as np
import pyarrow as pa

from shardsift.fleet.errors import ShardError, UsageError
from shardsift.fleet.inputs.formats import has_footer
from shardsift.fleet.inputs.identity import are_of_other_bytes
from shardsift.fleet.inputs.input_file import BadRows
from shardsift.fleet.inputs.open_input import open_shard
from shardsift.fleet.inputs.parquet_file import open_parquet, row_group_rows
from shardsift.fleet.run.receipt import Receipt
from shardsift.fleet.run.spec import RunSpec, Shard
from shardsift.fleet.storage.errors import translated

_FEWEST_SKIPPED = 100_000  # values; fewer are read, because opening a file again costs more


def source_of(receipts: Iterable[Receipt], name: str, source: Mapping[str, Shard], *, what: str = "Texts are") -> Shard:
    """Return a shard of the input by its name. `receipts` must include its receipt. `what` begins the error message.

    Raises UsageError if `source` lacks the shard, ShardError if its file has changed since it was scored.
    """
    if name not in source:
        raise UsageError(f"{what} read from the input. Name the input with --input: it must have the shard {name}.")
    shard, scored = source[name], next(one for one in receipts if one.shard == name)
    if are_of_other_bytes(shard.identity, scored.source_identity):
        raise ShardError(f"{shard.uri} has other bytes than those that were scored.")
    return shard


def read_rows(uri: str, rows: Collection[int], spec: RunSpec, columns: Sequence[str], *, bad: BadRows) -> pa.Table:
    """Read columns of the rows with these numbers, in ascending order. Skips row groups of Parquet that are far from them.

    Adds to `bad` all rows that it meets and cannot read, such as broken lines, even if they are not in `rows`.
    """
    wanted = np.sort(np.fromiter(rows, np.int64, len(rows)))
    if not len(wanted):
        with open_shard(uri, spec) as file:
            return file.schema.empty_table().select(list(columns))
    skips, parts = has_footer(uri), [wanted]
    if skips and np.any(is_far := np.diff(wanted) > _FEWEST_SKIPPED // len(columns)):
        with open_parquet(uri) as parquet:
            groups = np.searchsorted(np.cumsum(row_group_rows(parquet)), wanted, side="right")
        parts = np.split(wanted, np.flatnonzero(is_far & (np.diff(groups) > 0)) + 1)
    found: list[pa.RecordBatch] = []
    for part in parts:
        first = int(part[0]) if skips else 0
        opened = open_shard(uri, spec, first_row=first)
        with opened as file, translated("Reading the input"):
            for batch in file.batches(list(columns), bad=bad, use_threads=False):
                here = part[slice(*np.searchsorted(part, (first, first + len(batch))))]
                if len(here):
                    read = batch.select(list(columns))
                    found.append(read if len(here) == len(read) else read.take(pa.array(here - first)))
                first += len(batch)
                if first > part[-1]:
                    break
    return pa.Table.from_batches(found)
