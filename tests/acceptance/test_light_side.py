"""The control side alone, as on a machine without torch: CLI, embedded Redis, enqueue, finalizer.

Also part of `make test-light`, with other Pythons. The test itself acts as the worker: it claims, stages and completes.
"""

import json
from pathlib import Path

import pytest

from support.finalizer_runs import FinalizerRun
from support.fleet import Fleet
from support.outputs import data_digests, manifest_lines


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
    FinalizerRun(ledger=fleet.ledger, spec=fleet.ledger.spec(run_id)).do(*fleet.ledger.shards(run_id))
    with fleet.finalizer():
        fleet.wait_until_published(run_id)
    after = fleet.producer("status", run_id)

    assert sent.returncode == 0, sent.stderr
    assert (before.returncode, after.returncode) == (3, 0)
    assert len(manifest_lines(output)) == 8
    assert len(data_digests(output)) == 16
