"""A shard that is done: its files and its receipt describe each row, and are the same each time."""

import gc
import hashlib
import threading
from pathlib import Path

import psutil
import pyarrow as pa
import pyarrow.parquet as pq

from shardsift.fleet.run.receipt import Receipt
from support.claimed_shards import Office


def test_a_receipt_describes_the_output_and_names_neither_folder_nor_worker(office: Office, shards: Path) -> None:
    desk = office.claim(shards, where="token_count >= 500")

    receipt = desk.work()

    rows = pq.read_table(shards / "000_00000.parquet")
    kept = rows.filter(pa.compute.greater_equal(rows["token_count"], 500))
    assert 0 < len(kept) < len(rows)
    assert (receipt.rows_in, receipt.rows_kept) == (len(rows), len(kept))
    assert receipt.rows_dropped == len(rows) - len(kept)
    assert (receipt.rows_errored, receipt.errors) == (0, {})
    assert (receipt.data.rows, receipt.scores.rows) == (len(kept), len(rows))
    assert pq.read_table(desk.output / receipt.data.staged_path).select(rows.schema.names).equals(kept)
    for file in (receipt.data, receipt.scores):
        content = (desk.output / file.staged_path).read_bytes()
        assert (file.size_bytes, file.sha256) == (len(content), hashlib.sha256(content).hexdigest())
    told = receipt.to_json().decode()
    assert receipt.source_uri.endswith("000_00000.parquet")
    assert str(shards) not in told
    assert "w1@test" not in told


def test_a_scored_shard_leaves_its_staged_files_and_its_receipt_and_nothing_else(office: Office, shards: Path) -> None:
    desk = office.claim(shards)

    receipt = desk.work()

    (kept_receipt,) = desk.output.rglob("000_00000/*.json")
    assert Receipt.from_json(kept_receipt.read_bytes()) == receipt
    assert len(desk.produced()) == 3
    assert [path.name for path in desk.output.iterdir()] == [".shardsift"]
    assert list(desk.scratch.iterdir()) == []


def test_shards_leave_no_thread_process_or_file_handle_behind(office: Office, shards: Path) -> None:
    desk = office.claim(shards)
    desk.work()
    threads, processes, files = held()

    again = 20
    for _ in range(again):
        office.desk(desk.claim).work()

    threads_after, processes_after, files_after = held()
    assert threads_after <= threads
    assert processes_after <= processes
    assert files_after < files + again  # each would leave one; a thread of another test may open a connection meanwhile


def held() -> tuple[set[str], int, int]:
    """The threads, child processes and open files, after a garbage collection that removes those of earlier tests."""
    gc.collect()
    me = psutil.Process()
    return {thread.name for thread in threading.enumerate()}, len(me.children(recursive=True)), me.num_fds()
