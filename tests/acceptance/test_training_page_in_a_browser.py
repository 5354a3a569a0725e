"""The Runs page in a real browser lists a training, and draws its losses."""

import re
from pathlib import Path

import pytest

from fleet.attempt_report import AttemptReport
from fleet.ledger import Claim
from fleet.training.progress import LossPoint, TrainProgress
from fleet.training.spec import FullTraining, TrainSpec
from fleet.training.task import WHOLE, FleetTraining
from support.browser import LOGIN, needs_chromium, page
from support.fleet import Fleet
from support.ports import unused_port
from support.processes import started
from support.records import a_shard
from support.waiting import wait_until

PORT = unused_port()
TRAINING = FleetTraining(
    spec=TrainSpec(data_uri="/data/l.parquet", base_model="me/base", output_uri="/models/mine", full=FullTraining()),
    checkpoints_uri="/models/mine.checkpoints",
)
PROGRESS = TrainProgress(
    step=1_200,
    planned_steps=2_400,
    losses=(LossPoint(step=600, loss=1.5, held_out_loss=1.25), LossPoint(step=1_200, loss=0.75, held_out_loss=1.0)),
)
REPORT = AttemptReport(
    device="cpu", rows_per_second=32.0, rows_written=0, rows_kept=0, tokens=0, seconds={}, training=PROGRESS
)

pytestmark = [pytest.mark.slow, needs_chromium]


def test_a_training_is_listed_and_its_losses_are_drawn(fleet: Fleet, tmp_path: Path) -> None:
    trainings = fleet.ledger.trainings
    trainings.create_run(TRAINING, [a_shard(WHOLE)], now=1.0)
    claim = trainings.claim(TRAINING.run_id, WHOLE, "w1@box/1")
    assert isinstance(claim, Claim)
    trainings.renew(claim, rows=38_400, report=REPORT)
    environment = {**fleet.environment, "SHARDSIFT_FLOWER_AUTH": LOGIN}

    with started("producer", "flower", "--port", str(PORT), environment=environment, log=fleet.log("flower")):
        listed = wait_until(lambda: shown("/runs", "1,200 of 2,400", tmp_path), description="the list shows it")
        html = wait_until(
            lambda: shown(f"/runs/{TRAINING.run_id}", "polyline", tmp_path), description="its page draws the losses"
        )

    assert f'href="/runs/{TRAINING.run_id}"' in listed
    assert re.search(r'<p [^>]*id="empty" hidden', listed)  # it says that there is no run
    assert re.search(r'<section [^>]*id="runs-card" [^>]*hidden', listed)
    assert [len(points.split()) for points in re.findall(r'points="([^"]*)"', html)] == [2, 2]
    assert "at most 1.5000" in html
    assert re.findall(r'<text class="loss-mark"[^>]*>([^<]*)', html) == ["0.0", "0.5", "1.0", "1.5"]
    assert "loss of the rows trained on, last 0.7500" in html
    assert "loss of the held-out rows, last 1.0000" in html
    assert "step 1,200 of 2,400: loss 0.7500, held-out 1.0000" in html
    assert "/models/mine.checkpoints" in html


def shown(path: str, wanted: str, profile: Path) -> str | None:
    """The page, when it has that. None until Flower answers."""
    html = page(PORT, path, profile / "profile")
    return html if wanted in html else None
