"""A shard from its claim to its receipt, with a real ledger, a real model and a real folder, without Celery."""

import gc
import hashlib
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import redis

from fleet.errors import LeaseLost, ShardError, Stopped, TransientError
from fleet.ledger import Claim, Ledger, Publication
from fleet.receipt import Receipt
from fleet.storage.identity import identity_now
from fleet.storage.opening import open_output
from producer.demo.shards import write_shards
from producer.finalizer.publish import finalize_run
from producer.local.redis_server import embedded_redis
from producer.options import RunOptions
from producer.plan import plan_run
from producer.retry import Retried, retry_run
from support.waiting import wait_until
from worker.scoring import SequenceClassifier, load_scorer
from worker.service.checkpoint_store import open_checkpoint
from worker.service.lease import Lease
from worker.service.watchdog import Watchdog
from worker.shard.score_shard import score_shard

_outputs = count()


@pytest.fixture(scope="module")
def ledger(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ledger]:
    with (
        embedded_redis(tmp_path_factory.mktemp("redis")) as url,
        redis.Redis.from_url(url, decode_responses=True) as client,
    ):
        yield Ledger(client, lease_seconds=4)


@pytest.fixture(scope="module")
def scorer(tiny_model: Path) -> SequenceClassifier:
    return load_scorer(str(tiny_model), "float32")


@dataclass
class Desk:
    """What a worker has: a claimed shard, its lease, a scorer, and a scratch folder."""

    claim: Claim
    lease: Lease
    scorer: SequenceClassifier
    scratch: Path
    stopping: threading.Event
    ledger: Ledger

    @property
    def output(self) -> Path:
        return Path(self.claim.spec.output_uri)

    def work(self) -> Receipt:
        with self.lease:
            return self.work_under_the_lease()

    def work_under_the_lease(self) -> Receipt:
        output = open_output(self.claim.spec.output_uri, self.claim.run_id)
        with open_checkpoint(self.claim, self.ledger, output, self.stopping) as checkpoint:
            return score_shard(
                self.claim, [self.scorer], self.lease, checkpoint, output, worker="w1@test/1", scratch_dir=self.scratch
            )

    def produced(self) -> list[str]:
        """The files of the output without the spec that `enqueue` wrote, and the rest of the scratch folder."""
        files = [path for folder in (self.output, self.scratch) for path in folder.rglob("*") if path.is_file()]
        return sorted(path.name for path in files if path.name != "spec.json")


class Office:
    """Runs over folders of shards, enqueued and claimed as by the product."""

    def __init__(self, ledger: Ledger, scorer: SequenceClassifier, model: Path, folder: Path) -> None:
        self._ledger, self._scorer, self._model, self._folder = ledger, scorer, model, folder

    def claim(self, shards: Path, *, shard: int = 0, scratch: Path | None = None, **options: object) -> Desk:
        output = self._folder / f"output-{next(_outputs)}"
        plan = plan_run(
            RunOptions(
                **{
                    "input_uris": (str(shards),),
                    "model": str(self._model),
                    "dtype": "float32",
                    "output_uri": str(output),
                    "keep_all": "where" not in options,
                    **options,
                }
            )
        )
        open_output(plan.spec.output_uri, plan.spec.run_id).reserve(plan.spec)
        self._ledger.create_run(plan.spec, plan.shards, now=0)
        claim = self._ledger.claim(plan.spec.run_id, plan.shards[shard].name, owner="w1@test/1")
        assert isinstance(claim, Claim)
        return self.desk(claim, scratch=scratch)

    def desk(self, claim: Claim, *, scratch: Path | None = None) -> Desk:
        scratch = scratch or self._folder / "scratch"
        scratch.mkdir(exist_ok=True)
        stopping = threading.Event()
        lease = Lease(
            self._ledger,
            claim,
            stopping=stopping,
            report=lambda _line: None,
            report_seconds=10,
            watchdog=Watchdog(900, sys.__stderr__),
        )
        return Desk(
            claim=claim, lease=lease, scorer=self._scorer, scratch=scratch, stopping=stopping, ledger=self._ledger
        )

    def taken_over(self, claim: Claim) -> Claim:
        """The claim of this worker's next child, which ends the old claim."""
        second = self._ledger.claim(claim.run_id, claim.shard.name, owner="w1@test/1")
        assert isinstance(second, Claim)
        return second


@pytest.fixture
def office(ledger: Ledger, scorer: SequenceClassifier, tiny_model: Path, tmp_path: Path) -> Office:
    return Office(ledger, scorer, tiny_model, tmp_path)


def one_shard(folder: Path, rows: pa.Table) -> Path:
    folder.mkdir()
    pq.write_table(rows, folder / "000_00000.parquet")
    return folder


# --- a shard that is done ---------------------------------------------------------------------------------------------


def test_a_receipt_describes_the_output_and_its_counts_add_up(office: Office, shards: Path) -> None:
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


@pytest.mark.parametrize("publish_paths", [False, True])
def test_a_receipt_names_folder_and_worker_only_if_the_run_asks_for_it(
    office: Office, shards: Path, publish_paths: bool
) -> None:
    desk = office.claim(shards, publish_paths=publish_paths)

    receipt = desk.work()

    told = receipt.to_json().decode()
    assert receipt.source_uri.endswith("000_00000.parquet")
    assert (str(shards) in told) == publish_paths
    assert ("w1@test" in told) == publish_paths


def test_the_receipt_is_stored_with_the_staged_files_and_nothing_is_visible_or_left_over(
    office: Office, shards: Path
) -> None:
    desk = office.claim(shards)

    receipt = desk.work()

    (kept_receipt,) = desk.output.rglob("000_00000/*.json")
    assert Receipt.from_json(kept_receipt.read_bytes()) == receipt
    assert len(desk.produced()) == 3
    assert [path.name for path in desk.output.iterdir()] == [".shardsift"]
    assert list(desk.scratch.iterdir()) == []


def test_a_shard_scored_twice_has_the_same_bytes(office: Office, shards: Path) -> None:
    desk = office.claim(shards)

    first = desk.work()
    again = office.desk(office.taken_over(desk.claim)).work()

    assert (first.data.sha256, first.scores.sha256) == (again.data.sha256, again.scores.sha256)
    assert first.data.staged_path != again.data.staged_path  # the late one of two attempts overwrites nothing


def test_a_window_has_the_same_scores_to_the_last_bit_whatever_was_scored_before(
    office: Office, scorer: SequenceClassifier, shards: Path
) -> None:
    desk = office.claim(shards)
    desk.claim = replace(desk.claim, spec=replace(desk.claim.spec, window_rows=5))

    receipt = desk.work()

    in_one_go = pq.read_table(desk.output / receipt.scores.staged_path)["score"].to_numpy()
    texts = pq.read_table(shards / "000_00000.parquet")["text"]
    assert len(texts) == 12
    for first in (10, 5, 0):
        alone = scorer.score(texts.slice(first, 5)).values[:, 0]
        assert alone.tobytes() == in_one_go[first : first + 5].tobytes()


def test_the_next_window_is_tokenised_while_the_device_works_on_this_one(
    office: Office, scorer: SequenceClassifier, shards: Path
) -> None:
    encoded = Counted(scorer.tokenizer.encode)
    device = WaitsAtFirst(scorer.backend, until=lambda: encoded.calls >= 2)
    desk = office.claim(shards)
    desk.claim = replace(desk.claim, spec=replace(desk.claim.spec, window_rows=5))
    desk.scorer = replace(scorer, backend=device, tokenizer=SimpleNamespace(encode=encoded))

    receipt = desk.work()

    assert receipt.rows_in == 12
    assert encoded.calls == 3


class Counted:
    def __init__(self, function: Callable[..., Any]) -> None:
        self.calls = 0
        self._function = function

    def __call__(self, *args: Any) -> Any:
        self.calls += 1
        return self._function(*args)


@dataclass
class WaitsAtFirst:
    """A device that finishes its first batch only after another event has happened."""

    backend: Any
    until: Callable[[], bool]
    name: str = "stand-in"

    def logits(self, batch: Any) -> Any:
        wait_until(self.until, description="the next step's work is done meanwhile", seconds=30)
        return self.backend.logits(batch)


def test_fifty_shards_leave_no_thread_process_or_file_handle_behind(office: Office, shards: Path) -> None:
    desk = office.claim(shards)
    desk.work()
    threads, processes, files = held()

    for _ in range(50):
        office.desk(desk.claim).work()

    threads_after, processes_after, files_after = held()
    assert threads_after <= threads
    assert processes_after <= processes
    assert files_after <= files


def held() -> tuple[set[str], int, int]:
    """The threads, child processes and open files, after a garbage collection that removes those of earlier tests."""
    gc.collect()
    me = psutil.Process()
    return {thread.name for thread in threading.enumerate()}, len(me.children(recursive=True)), me.num_fds()


def test_rows_that_cannot_be_scored_are_counted_by_reason_and_never_kept(office: Office, tmp_path: Path) -> None:
    folder = one_shard(tmp_path / "in", pa.table({"text": ["one", None, "three", None], "place": range(4)}))
    desk = office.claim(folder)

    receipt = desk.work()

    assert (receipt.rows_kept, receipt.rows_dropped, receipt.errors) == (2, 0, {"null text": 2})
    assert pq.read_table(desk.output / receipt.data.staged_path)["place"].to_pylist() == [0, 2]


BLANK = ["", "  ", "\t\n", "\u00a0\u3000\u2028"]


def test_a_text_without_a_visible_character_is_an_errored_row(
    office: Office, scorer: SequenceClassifier, tmp_path: Path
) -> None:
    texts = ["one", *BLANK, None, " two ", "\u200b", "."]
    desk = office.claim(one_shard(tmp_path / "in", pa.table({"text": texts})))

    receipt = desk.work()

    assert receipt.errors == {"blank text": len(BLANK), "null text": 1}
    kept = pq.read_table(desk.output / receipt.data.staged_path)
    assert kept["text"].to_pylist() == ["one", " two ", "\u200b", "."]
    expected = scorer.score(kept["text"]).values[:, 0]
    assert kept["score"].to_pylist() == pytest.approx(expected.tolist(), abs=1e-6)
    lines = pq.read_table(desk.output / receipt.scores.staged_path).to_pylist()
    assert [line["error"] for line in lines[1:5]] == ["blank text"] * 4
    assert lines[1]["score"] is None


def test_blank_texts_are_scored_on_request(office: Office, scorer: SequenceClassifier, tmp_path: Path) -> None:
    desk = office.claim(one_shard(tmp_path / "in", pa.table({"text": BLANK})), score_blank=True)

    receipt = desk.work()

    assert (receipt.rows_kept, receipt.errors) == (len(BLANK), {})
    assert desk.claim.spec.scorings[0].score_blank


def test_rows_beyond_the_limit_are_not_read(office: Office, shards: Path) -> None:
    desk = office.claim(shards, limit_rows=7)

    receipt = desk.work()

    assert (receipt.rows_in, receipt.scores.rows) == (7, 7)


@pytest.mark.parametrize("text_type", [pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())])
def test_a_text_that_is_not_utf8_is_scored_with_replacement_characters_and_kept_as_it_is(
    office: Office, tmp_path: Path, text_type: pa.DataType
) -> None:
    raw = pa.array([b"good", b"b\xffd", None], pa.binary())
    texts = raw.view(pa.string()) if text_type == pa.string() else pa.chunked_array([raw.view(pa.string())])
    if text_type == pa.large_string():
        texts = raw.cast(pa.large_binary()).view(pa.large_string())
    if pa.types.is_dictionary(text_type):
        texts = pa.DictionaryArray.from_arrays(pa.array([0, 1, None], pa.int32()), raw[:2].view(pa.string()))
    desk = office.claim(one_shard(tmp_path / "in", pa.table({"text": texts})))

    receipt = desk.work()

    kept = pq.read_table(desk.output / receipt.data.staged_path)
    as_bytes = kept["text"].cast(pa.large_string()).cast(pa.large_binary())
    assert as_bytes.to_pylist() == [b"good", b"b\xffd"]
    expected = desk.scorer.score(["good", "b\ufffdd"]).values[:, 0]
    assert kept["score"].to_pylist() == pytest.approx(expected.tolist(), abs=1e-5)
    assert receipt.errors == {"null text": 1}


# --- a file that is not the one that was enqueued ---------------------------------------------------------------------


def test_a_file_that_was_rewritten_after_it_was_enqueued_fails_its_shard(office: Office, tmp_path: Path) -> None:
    folder = one_shard(tmp_path / "in", texts("old", 12))
    desk = office.claim(folder)
    pq.write_table(texts("new", 12), folder / "000_00000.parquet")

    with pytest.raises(ShardError, match="000_00000: the input changed since it was enqueued .*producer retry"):
        desk.work()

    assert desk.produced() == []


@pytest.mark.parametrize("change", ["rewritten", "truncated", "removed"])
def test_a_file_that_changes_while_it_is_read_fails_its_shard(office: Office, tmp_path: Path, change: str) -> None:
    """The file is larger than the read-ahead, so the rest of it is read after the change."""
    file = tmp_path / "in" / "000_00000.parquet"
    file.parent.mkdir()
    write_wide(file, "old")
    desk = office.claim(file.parent)
    desk.claim = replace(desk.claim, spec=replace(desk.claim.spec, window_rows=WINDOW_ROWS))
    desk.scorer = replace(desk.scorer, backend=ChangesAtFirst(desk.scorer.backend, file, change))

    with pytest.raises(ShardError, match="the input changed|No such file"):
        desk.work()

    assert desk.produced() == []


def test_scores_of_a_file_that_was_replaced_are_not_given_to_the_rows_of_the_new_one(
    ledger: Ledger, office: Office, scorer: SequenceClassifier, tmp_path: Path
) -> None:
    file = one_shard(tmp_path / "in", texts("old", 12)) / "000_00000.parquet"
    desk = office.claim(file.parent)
    desk.claim = replace(desk.claim, spec=replace(desk.claim.spec, window_rows=4))
    desk.scorer = replace(scorer, backend=StopsAfter(scorer.backend, batches=2, stopping=desk.stopping))
    with pytest.raises(Stopped):
        desk.work()
    assert len(ledger.saved_scores(desk.claim)) == 2

    pq.write_table(texts("new", 12), file)
    ledger.release(desk.claim)
    again = replace(office.taken_over(desk.claim), spec=desk.claim.spec)
    resumed = office.desk(as_it_is_now(again))
    receipt = resumed.work()

    scores = pq.read_table(resumed.output / receipt.scores.staged_path)["score"].to_pylist()
    assert scores == scorer.score(texts("new", 12)["text"]).values[:, 0].tolist()


def test_a_retry_reads_a_replaced_file_as_it_is_now_and_manifest_and_card_say_so(
    ledger: Ledger, office: Office, tmp_path: Path
) -> None:
    file = one_shard(tmp_path / "in", texts("old", 3)) / "000_00000.parquet"
    desk = office.claim(file.parent)
    pq.write_table(texts("new", 5), file)
    with pytest.raises(ShardError) as failure:
        desk.work()
    ledger.fail(desk.claim, str(failure.value), "")

    retried = retry_run(ledger, desk.claim.run_id)

    assert retried == Retried(queued=1, changed=("000_00000",))
    again = office.desk(office.taken_over(desk.claim))
    ledger.complete(again.claim, again.work())
    assert isinstance(finalize_run(ledger, desk.claim.run_id, without_failed=False), Publication)
    assert pq.read_table(desk.output / "data/000_00000.parquet")["text"].to_pylist() == [
        f"new {row}" for row in range(5)
    ]
    (line,) = pq.read_table(desk.output / "manifest.parquet").to_pylist()
    assert (line["source_identity"], line["source_changed"]) == (identity_now(again.claim.shard.uri)[0], True)
    assert "but for 1 of the files, replaced after the run was enqueued" in (desk.output / "README.md").read_text()


def test_a_retry_of_a_file_that_did_not_change_or_is_gone_keeps_its_record(
    ledger: Ledger, office: Office, shards: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "in"
    shutil.copytree(shards, folder)
    desk = office.claim(folder)
    other = office.desk(claimed(ledger, desk.claim, "000_00001"))
    for claim in (desk.claim, other.claim):
        ledger.fail(claim, "no reason", "")
    (folder / "000_00000.parquet").unlink()

    assert retry_run(ledger, desk.claim.run_id) == Retried(queued=2, changed=())
    assert claimed(ledger, desk.claim, "000_00000").shard == desk.claim.shard
    with pytest.raises(ShardError, match="Looking at .*000_00000.parquet: No such file"):
        desk.work()


def claimed(ledger: Ledger, of_same_run: Claim, shard: str) -> Claim:
    claim = ledger.claim(of_same_run.run_id, shard, owner=f"w1@test/{shard}")
    assert isinstance(claim, Claim)
    return claim


def as_it_is_now(claim: Claim) -> Claim:
    """Record the shard of a replaced file, as a retry does."""
    identity, size_bytes = identity_now(claim.shard.uri)
    return replace(claim, shard=replace(claim.shard, identity=identity, size_bytes=size_bytes))


@dataclass
class StopsAfter:
    """A device that is told to stop while it works on its last batch."""

    backend: Any
    batches: int
    stopping: threading.Event
    name: str = "stand-in"

    def logits(self, batch: Any) -> Any:
        self.batches -= 1
        if not self.batches:
            self.stopping.set()
        return self.backend.logits(batch)


def test_a_file_that_was_touched_is_scored(office: Office, shards: Path) -> None:
    desk = office.claim(shards)
    os.utime(shards / "000_00000.parquet", (1, 1))

    assert desk.work().source_identity == desk.claim.shard.identity


def texts(word: str, rows: int) -> pa.Table:
    return pa.table({"text": [f"{word} {row}" for row in range(rows)]})


WINDOW_ROWS = 256


def write_wide(file: Path, word: str) -> None:
    """Nine megabytes with few tokens. Two files with words of the same length have each row at the same offset."""
    rows = pa.table({"text": [f"{word} {row:<3000}" for row in range(3000)]})
    pq.write_table(rows, file, compression="none", use_dictionary=False, row_group_size=WINDOW_ROWS)


@dataclass
class ChangesAtFirst:
    """A device during whose first batch the input changes."""

    backend: Any
    file: Path
    change: str
    name: str = "stand-in"

    def logits(self, batch: Any) -> Any:
        match self.change:
            case "rewritten":
                write_wide(self.file, "new")
            case "truncated":
                self.file.write_bytes(self.file.read_bytes()[:100])
            case "removed":
                self.file.unlink()
        self.change = "none"
        return self.backend.logits(batch)


# --- a shard that is given up -----------------------------------------------------------------------------------------


def test_a_stop_ends_the_shard_with_nothing_published(office: Office, shards: Path) -> None:
    desk = office.claim(shards)
    desk.stopping.set()

    with pytest.raises(Stopped, match="000_00000 was given back"):
        desk.work()

    assert desk.produced() == []


def test_a_lost_lease_ends_the_shard_with_nothing_published(ledger: Ledger, office: Office, shards: Path) -> None:
    desk = office.claim(shards)
    office.taken_over(desk.claim)

    with desk.lease:
        wait_until(lambda: has_lost(desk.lease), description="the lease is noticed to be lost", seconds=20)
        with pytest.raises(LeaseLost, match="another attempt took it over"):
            desk.work_under_the_lease()

    assert desk.produced() == []


def has_lost(lease: Lease) -> bool:
    try:
        lease.check()
    except LeaseLost:
        return True
    return False


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A real file system of 64 kB; only root can mount one."""
    folder = tmp_path / "small"
    folder.mkdir()
    mount = shutil.which("mount")
    if not mount:
        pytest.skip("there is no mount program here")
    mounted = subprocess.run([mount, "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(folder)], capture_output=True)
    if mounted.returncode:
        pytest.skip("this user cannot mount a small file system")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_a_full_disk_is_a_transient_error_that_says_what_to_do(
    office: Office, small_disk: Path, tmp_path: Path
) -> None:
    write_shards(tmp_path / "in", shards=1, rows=300, seed=2)
    desk = office.claim(tmp_path / "in", scratch=small_disk)

    with pytest.raises(TransientError, match="no space left.*SHARDSIFT_SCRATCH_DIR"):
        desk.work()

    assert desk.produced() == []


def test_a_filter_that_fails_on_a_rows_value_fails_the_shard_with_the_reason(office: Office, shards: Path) -> None:
    desk = office.claim(shards, where="CAST(url AS INTEGER) > 0")

    with pytest.raises(ShardError, match=r'Shard 000_00000: The filter "CAST\(url AS INTEGER\) > 0" cannot be used'):
        desk.work()

    assert desk.produced() == []


def test_a_filter_that_exceeds_its_limits_fails_the_shard_with_the_reason(office: Office, shards: Path) -> None:
    huge = "length(repeat(url, CASE WHEN length(url) < 1000 THEN 9000000 ELSE 1 END)) > 0"
    desk = office.claim(shards, where=huge)

    with pytest.raises(ShardError, match=r"Shard 000_00000: The filter .* it needs more than \d+ MiB of memory"):
        desk.work()

    assert desk.produced() == []


def test_a_later_shard_with_a_column_named_like_an_added_one_fails_with_the_reason(
    office: Office, tmp_path: Path
) -> None:
    folder = one_shard(tmp_path / "in", pa.table({"text": ["a"]}))
    pq.write_table(pa.table({"text": ["b"], "score": [1.0]}), folder / "000_00001.parquet")
    desk = office.claim(folder, shard=1)

    with pytest.raises(ShardError, match='Shard 000_00001: The input already has a column "score"'):
        desk.work()

    assert desk.produced() == []


def test_a_shard_that_is_broken_halfway_fails_with_the_reason(office: Office, tmp_path: Path) -> None:
    (file,) = write_shards(tmp_path / "in", shards=1, rows=400, seed=2, row_group_rows=100)
    content = bytearray(file.read_bytes())
    third_group = pq.read_metadata(file).row_group(2).column(0)
    for offset in range(third_group.data_page_offset, third_group.data_page_offset + 2000):
        content[offset] ^= 0xFF
    file.write_bytes(content)
    desk = office.claim(tmp_path / "in")

    with pytest.raises(ShardError, match="Reading shard 000_00000: not a readable Parquet file"):
        desk.work()

    assert desk.produced() == []
