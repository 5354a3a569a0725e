"""A file that is not the one that was enqueued is never scored as if it were."""

import os
import shutil
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from shardsift.fleet.errors import ShardError, Stopped
from shardsift.fleet.inputs.identity import identity_now
from shardsift.fleet.ledger import Claim, Ledger, Publication
from shardsift.producer.planning.retry import Retried, retry_run
from shardsift.producer.publishing.publish import finalize_run
from shardsift.worker.scoring.sequence_classifier import SequenceClassifier
from support.backends import Preceded
from support.claimed_shards import Office, StopsAfter, one_shard
from support.ledger_states import claimed


@pytest.mark.parametrize("change", ["rewritten", "truncated"])
def test_a_file_that_changes_while_it_is_read_fails_its_shard(office: Office, tmp_path: Path, change: str) -> None:
    """The file is larger than the read-ahead, so the rest of it is read after the change."""
    file = tmp_path / "in" / "000_00000.parquet"
    file.parent.mkdir()
    write_wide(file, "old")
    desk = office.claim(file.parent)
    desk.claim = replace(desk.claim, spec=replace(desk.claim.spec, window_rows=WINDOW_ROWS))
    changes = [lambda: write_wide(file, "new") if change == "rewritten" else os.truncate(file, 100)]
    change_at_first = Preceded(desk.scorer.backend, before=lambda _: changes and changes.pop()())
    desk.scorer = replace(desk.scorer, backend=change_at_first)

    with pytest.raises(ShardError, match="the input changed|No such file"):
        desk.work()

    assert desk.produced() == []


def test_scores_of_a_file_that_was_replaced_are_not_given_to_the_rows_of_the_new_one(
    ledger: Ledger, office: Office, scorer: SequenceClassifier, tmp_path: Path
) -> None:
    file = one_shard(tmp_path / "in", texts("old", 12)) / "000_00000.parquet"
    desk = office.claim(file.parent)
    desk.claim = replace(desk.claim, spec=replace(desk.claim.spec, window_rows=4))
    desk.scorer = replace(scorer, backend=StopsAfter(scorer.backend, desk.stopping, batches=2))
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
    with pytest.raises(ShardError, match="the input changed since it was enqueued .*producer retry") as failure:
        desk.work()
    assert desk.produced() == []
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
    run_id, first = desk.claim.run_id, desk.claim.shard
    other = office.desk(claimed(ledger, run_id, replace(first, name="000_00001"), owner="w2@test/1"))
    for claim in (desk.claim, other.claim):
        ledger.fail(claim, "no reason", "")
    (folder / "000_00000.parquet").unlink()

    assert retry_run(ledger, run_id) == Retried(queued=2, changed=())
    assert claimed(ledger, run_id, first).shard == first
    with pytest.raises(ShardError, match="Looking at .*000_00000.parquet: No such file"):
        desk.work()


def as_it_is_now(claim: Claim) -> Claim:
    """Record the shard of a replaced file, as a retry does."""
    identity, size_bytes = identity_now(claim.shard.uri)
    return replace(claim, shard=replace(claim.shard, identity=identity, size_bytes=size_bytes))


def texts(word: str, rows: int) -> pa.Table:
    return pa.table({"text": [f"{word} {row}" for row in range(rows)]})


WINDOW_ROWS = 256


def write_wide(file: Path, word: str) -> None:
    """Nine megabytes with few tokens. Two files with words of the same length have each row at the same offset."""
    rows = pa.table({"text": [f"{word} {row:<3000}" for row in range(3000)]})
    pq.write_table(rows, file, compression="none", use_dictionary=False, row_group_size=WINDOW_ROWS)
