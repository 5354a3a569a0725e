"""Measure how `--unique` finds equal texts: seconds, memory and disk for many digests. On average, four rows share a text.

Writes shards of random digests as a run has them, with texts of some 100 characters. First only looks for the duplicates,
as the finalizer does. Then does all of it: looks for them and rewrites the data files without them.
"""

import argparse
import json
import resource
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from shardsift.fleet.ledger import Ledger
from shardsift.fleet.process.settings import Settings
from shardsift.fleet.run.output_columns import TEXT_DIGEST
from shardsift.fleet.run.receipt import Receipt, Receipts
from shardsift.fleet.run.spec import RunSpec
from shardsift.fleet.storage.open_output import open_output
from shardsift.producer.local.redis import embedded_redis
from shardsift.producer.publishing.unique import TextsOnDisk, add_kept_texts, is_first, remove_duplicates
from support.ledger_states import claimed
from support.outputs import file_sha256
from support.records import a_receipt, a_shard, a_spec, an_output_file

ROWS = 500_000  # of a shard
DOUBLED = 4  # rows of a text, on average


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--rows", type=int, default=20_000_000)
    rows = options.parse_args().rows
    with tempfile.TemporaryDirectory() as folder:
        spec = a_spec(output_uri=f"{folder}/out", unique=True)
        receipts, texts = _write(Path(folder) / "out", spec, rows)
        before, began = _peak_mib(), time.perf_counter()
        scratch = Path(folder) / "scratch"
        scratch.mkdir()
        with _disk(scratch) as disk, ExitStack() as files:
            found = TextsOnDisk(scratch, files)
            add_kept_texts(found, open_output(spec.output_uri, spec.run_id), spec, receipts, lambda _: 0)
            read = time.perf_counter()
            first = sum(int(np.count_nonzero(is_first(part))) for part in found.in_parts())
        assert first == texts
        figures = {
            "rows": rows,
            "texts": texts,
            "seconds": round(time.perf_counter() - began, 1),
            "of_them_reading": round(read - began, 1),
            "disk_bytes_a_row": round(max(disk) / rows, 1),
            "peak_mib": _peak_mib(),
            "peak_mib_before": before,
        }
        with embedded_redis(Path(folder)) as url:
            ledger = Ledger.connect(Settings(redis_url=url))
            _record(ledger, spec, receipts)
            began = time.perf_counter()
            remove_duplicates(ledger, spec, open_output(spec.output_uri, spec.run_id), Receipts(receipts))
            seconds = round(time.perf_counter() - began, 1)
            left = sum(receipt.rows_kept for receipt in ledger.receipts(spec.run_id))
        assert left == texts
        figures |= {"seconds_with_rewriting": seconds, "peak_mib_with_rewriting": _peak_mib()}
        sys.stdout.write(json.dumps(figures, indent=2) + "\n")


def _write(output: Path, spec: RunSpec, rows: int) -> tuple[list[Receipt], int]:
    """Write the data and scores files of each shard. Returns their receipts, and the number of different texts."""
    random = np.random.default_rng(7)
    receipts, seen = [], np.zeros(rows // DOUBLED, np.bool_)
    row_column = spec.row_columns[1]
    for number in range(rows // ROWS):
        shard = a_shard(f"crawl/{number:03}")
        chosen = random.integers(0, len(seen), ROWS)
        seen[chosen] = True
        digests = np.empty((ROWS, 2), np.uint64)
        digests[:, 0] = chosen.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)  # spread over all first bits
        digests[:, 1] = chosen
        column = pa.FixedSizeBinaryArray.from_buffers(pa.binary(16), ROWS, [None, pa.py_buffer(digests)])
        for path, table in (
            (shard.data_path, pa.table({row_column: np.arange(ROWS), "text": _texts(chosen)})),
            (shard.scores_path, pa.table({TEXT_DIGEST.name: column})),
        ):
            (output / path).parent.mkdir(parents=True, exist_ok=True)
            pq.write_table(table, output / path, write_page_checksum=True)
        files = (
            replace(an_output_file(path, rows=ROWS, sha256=file_sha256(output / path)), staged_path=path)
            for path in (shard.data_path, shard.scores_path)
        )
        data, scores = files
        counts = {"rows_in": ROWS, "rows_kept": ROWS, "rows_dropped": 0, "rows_errored": 0}
        receipts.append(a_receipt(spec.run_id, shard, data=data, scores=scores, errors={}, **counts))
    return receipts, int(np.count_nonzero(seen))


def _texts(numbers: npt.NDArray[np.int64]) -> pa.Array:
    return pc.binary_repeat(pc.binary_join_element_wise(pa.array(numbers).cast(pa.string()), "is here", " "), 6)


def _record(ledger: Ledger, spec: RunSpec, receipts: Sequence[Receipt]) -> None:
    shards = [a_shard(receipt.shard) for receipt in receipts]
    ledger.create_run(spec, shards, now=1.0)
    for shard, receipt in zip(shards, receipts, strict=True):
        ledger.complete(claimed(ledger, spec.run_id, shard), receipt)


def _peak_mib() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10


@contextmanager
def _disk(folder: Path) -> Iterator[list[int]]:
    """Record the size of a folder's files every tenth of a second, in the yielded list."""
    sizes, over = [0], threading.Event()

    def look() -> None:
        while not over.wait(0.1):
            sizes.append(sum(file.stat().st_size for file in folder.iterdir()))

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield sizes
    finally:
        over.set()
        thread.join()


if __name__ == "__main__":
    main()
