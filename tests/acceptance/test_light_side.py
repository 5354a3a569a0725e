"""The control side alone, as on a machine without torch: CLI, embedded Redis, enqueue, finalizer.

Also part of `make test-light`, with other Pythons. The test itself acts as the worker: it claims, stages and completes.
"""

import hashlib
import json
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fleet.ledger import Claim
from fleet.run.receipt import OutputFile, Receipt
from fleet.storage.opening import open_output
from support.fleet import Fleet
from support.outputs import manifest_lines, published_rows
from support.records import a_receipt
from support.waiting import wait_until


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """The files of a model that the control side reads."""
    folder = tmp_path / "classifier"
    folder.mkdir()
    (folder / "config.json").write_text(
        json.dumps({"architectures": ["BertForSequenceClassification"], "num_labels": 1})
    )
    return folder


@pytest.mark.slow
def test_a_run_is_enqueued_published_and_reported_without_torch(fleet: Fleet, shards: Path, model: Path) -> None:
    output = fleet.folder / "out"
    options = ("--input", shards, "--model", model, "--output", output, "--keep-all")

    sent = fleet.producer("enqueue", *options)
    run_id = sent.stdout.strip()
    before = fleet.producer("status", run_id)
    for shard in sorted(shards.glob("*.parquet")):
        score_by_hand(fleet, run_id, shard.stem)
    with fleet.finalizer():
        wait_until(lambda: fleet.ledger.publication(run_id), description="the run is published", seconds=60)
    after = fleet.producer("status", run_id)

    assert sent.returncode == 0, sent.stderr
    assert (before.returncode, after.returncode) == (3, 0)
    assert len(manifest_lines(output)) == 8
    assert published_rows(output)["score"].to_pylist() == [4.0] * 8


def score_by_hand(fleet: Fleet, run_id: str, shard: str) -> None:
    """Do a shard as a worker does, and keep one row of it."""
    claim = fleet.ledger.claim(run_id, shard, owner="by-hand@test/1")
    assert isinstance(claim, Claim)
    receipt = a_receipt(run_id, claim.shard)
    output = open_output(fleet.ledger.spec(run_id).output_uri, run_id)
    folder = fleet.folder / "built"
    folder.mkdir(exist_ok=True)

    def staged(path: str) -> OutputFile:
        file = folder / "file.parquet"
        pq.write_table(pa.table({"score": pa.array([4.0], pa.float32())}), file)
        return OutputFile(
            path=path,
            staged_path=output.stage(file, path, attempt="1-aa"),
            size_bytes=file.stat().st_size,
            sha256=hashlib.sha256(file.read_bytes()).hexdigest(),
            rows=1,
        )

    done: Receipt = replace(receipt, data=staged(claim.shard.data_path), scores=staged(claim.shard.scores_path))
    output.store_receipt(done)
    fleet.ledger.complete(claim, done)
