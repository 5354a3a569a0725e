"""Trainings in a ledger, without producers and workers."""

from fleet.attempt_report import AttemptReport
from fleet.ledger import Claim, Ledger
from fleet.receipt import Provenance
from fleet.training.model import TrainedModel
from fleet.training.progress import LossPoint, TrainProgress
from fleet.training.receipt import TrainReceipt
from fleet.training.spec import FullTraining, TrainSpec
from fleet.training.task import WHOLE, FleetTraining
from support.records import a_shard

HALF = TrainProgress(
    step=12,
    planned_steps=24,
    resumed_from=8,
    losses=(LossPoint(step=8, loss=1.1, held_out_loss=0.9), LossPoint(step=12, loss=0.75)),
)


def create_training(ledger: Ledger[FleetTraining], name: str = "model", *, now: float = 0) -> str:
    """Enqueue a training of all weights. Returns its id."""
    output = f"/mnt/{name}"
    spec = TrainSpec(data_uri="/mnt/topics.parquet", base_model="/mnt/base", output_uri=output, full=FullTraining())
    training = FleetTraining(spec=spec, checkpoints_uri=f"{output}.checkpoints")
    ledger.create_run(training, [a_shard(WHOLE)], now=now)
    return training.run_id


def claim_training(ledger: Ledger[FleetTraining], training_id: str, owner: str = "w1@box/1") -> Claim[FleetTraining]:
    claim = ledger.claim(training_id, WHOLE, owner)
    assert isinstance(claim, Claim)
    return claim


def training_report(
    progress: TrainProgress = HALF, *, device: str = "NVIDIA L4", idle_seconds: float = 2.0
) -> AttemptReport:
    """What a worker says of a training when it renews its lease."""
    return AttemptReport(
        device=device,
        rows_per_second=32.0,
        rows_written=0,
        rows_kept=0,
        tokens=0,
        seconds={},
        training=progress,
        idle_seconds=idle_seconds,
    )


def finish_training(ledger: Ledger[FleetTraining], claim: Claim[FleetTraining]) -> None:
    """Record a model, without writing one."""
    model = TrainedModel(
        training_id=claim.run_id,
        rows=30,
        device="NVIDIA L4",
        seconds=1.0,
        figures={"accuracy": 0.75},
        lines=(("accuracy", "75.0%"),),
        progress=TrainProgress(step=24, planned_steps=24, losses=HALF.losses),
    )
    made = Provenance(worker="w1", attempt=1, device="NVIDIA L4", versions={}, started_at=1.0, finished_at=2.0)
    ledger.complete(
        claim, TrainReceipt(output_uri=claim.spec.spec.output_uri, size_bytes=7, model=model, provenance=made)
    )
