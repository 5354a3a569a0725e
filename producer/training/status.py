"""The status of a training: what the ledger, the workers and the output say of it."""

import html
from dataclasses import asdict, dataclass

from fleet.demand import TRAINING
from fleet.ledger import Counts, Failure, Ledger, RunningShard
from fleet.ledger.records import Steering
from fleet.machines import MachineState
from fleet.training.model import TrainedModel
from fleet.training.progress import TrainProgress
from fleet.training.receipt import TrainReceipt
from fleet.training.task import TRAIN_QUEUE, WHOLE, FleetTraining
from fleet.training.trained import model_of
from fleet.workers import WorkerState
from producer.cost import DeviceCost, device_costs
from producer.status import ExitCode, Present

WORKER_COMMAND = "worker start --train"
HANG_SECONDS = 1800.0  # without a step or a batch of texts. Loading a large model may take long


@dataclass(frozen=True, kw_only=True, repr=False)
class TrainingStatus:
    """The current state of a training. As text it is what `producer status` prints.

    `model` is what was recorded of it, and `is_there` whether the output still has it: true also if that was not checked.
    """

    training_id: str
    training: FleetTraining
    complete: bool
    cancelled: bool
    paused: str | None  # why, empty if a person asked for it; None if it is not paused
    steering: Steering
    running: RunningShard | None
    failure: Failure | None
    retry: Failure | None  # it waits for another attempt after one that ended badly
    counts: Counts
    model: TrainedModel | None
    is_there: bool
    workers: tuple[WorkerState, ...] = ()  # that train, and are not stopping
    machines: tuple[MachineState, ...] = ()  # that start workers for it
    unable: tuple[MachineState, ...] = ()  # that could not train lately
    has_finalizer: bool = False
    reached: TrainProgress | None = None  # the last steps that a worker reported, also of an attempt that has ended

    def __repr__(self) -> str:
        progress = self.progress
        steps = f"step {progress.step:,} of {progress.planned_steps:,}; " if progress and progress.planned_steps else ""
        return f"<TrainingStatus {self.word}: {steps}{self.training_id}>"

    def __str__(self) -> str:
        from producer.training.report import training_screen  # it builds on this module

        return "\n".join(training_screen(self))

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        return f"<pre>{html.escape(str(self))}</pre>"

    @property
    def word(self) -> str:
        if self.model:
            return "done" if self.is_there else "damaged"
        if self.cancelled:  # also a failed one that a person has given up
            return "cancelled"
        if self.failure:
            return "failed"
        if not self.complete:
            return "half enqueued"
        if self.paused is not None:
            return "paused"
        if self.running:
            return "running"
        return "loading" if any(worker.activity == "loading" for worker in self.workers) else "queued"

    @property
    def progress(self) -> TrainProgress | None:
        """That of the attempt that goes on, otherwise of the last one. None before a worker has reported any."""
        if self.model:
            return self.model.progress
        if self.running is None:
            return self.reached
        return self.running.report.training if self.running.report else None

    @property
    def seconds_left(self) -> float | None:
        """Of the steps, at the speed of the last ones."""
        report, full = self.running.report if self.running else None, self.training.spec.full
        progress = self.progress
        if not (report and full and progress and progress.planned_steps and report.rows_per_second):
            return None
        steps = progress.planned_steps - progress.step
        return steps * full.batch_rows * full.accumulation_steps / report.rows_per_second

    @property
    def idle_seconds(self) -> float | None:
        """Since a step was taken or a batch of texts was done. None without a worker, or if an earlier version trains."""
        report = self.running.report if self.running else None
        if self.running is None or report is None or report.idle_seconds is None:
            return None
        return report.idle_seconds + self.running.seen_seconds

    @property
    def hangs(self) -> bool:
        """Whether its worker probably hangs. A silent one is another matter: it loses the training when its lease ends."""
        return self.idle_seconds is not None and self.idle_seconds > HANG_SECONDS

    @property
    def worker_seconds(self) -> float:
        """In which workers have held it, in all attempts."""
        return self.counts.worker_seconds

    @property
    def costs(self) -> tuple[DeviceCost, ...]:
        """Of the devices that workers held it on, by list prices."""
        return device_costs(self.counts, None)

    @property
    def is_unserved(self) -> bool:
        """Whether it waits for a worker, and none will come by itself."""
        return self.word == "queued" and not self.workers and not self.machines

    @property
    def is_over(self) -> bool:
        return self.word in ("done", "damaged", "failed", "cancelled")

    @property
    def exit_code(self) -> ExitCode:
        ends = {"done": ExitCode.DONE, "damaged": ExitCode.FAILED, "failed": ExitCode.FAILED}
        return {**ends, "cancelled": ExitCode.CANCELLED}.get(self.word, ExitCode.RUNNING)

    def as_json(self) -> dict[str, object]:
        """`run_id` and `state` as of a run, so that a list may have both."""
        progress, fields = self.progress, asdict(self)
        del fields["counts"]  # of the shard that stands for the whole
        return fields | {
            "kind": "training",
            "run_id": self.training_id,
            "state": self.word,
            "progress": asdict(progress) if progress else None,
            "loss": progress.loss if progress else None,
            "held_out_loss": progress.held_out_loss if progress else None,
            "seconds_left": self.seconds_left,
            "idle_seconds": self.idle_seconds,
            "queued": bool(self.counts.queued),
            "worker_seconds": self.worker_seconds,
            "costs": [asdict(one) for one in self.costs],
        }


def training_status(
    ledger: Ledger[FleetTraining], training_id: str, *, present: Present | None = None, looks: bool = True
) -> TrainingStatus:
    """Read the status of a training. With `looks`, also look whether its model is there.

    Raises UsageError if there is no such training, and as `model_of` if the Hub does not say.
    """
    training, counts = ledger.spec(training_id), ledger.counts(training_id)
    present = present or Present.read(ledger.redis)
    recorded = ledger.recorded(training_id, WHOLE)
    return TrainingStatus(
        training_id=training_id,
        training=training,
        complete=ledger.is_enqueued(training_id),
        cancelled=ledger.is_cancelled(training_id),
        paused=ledger.pause_reason(training_id),
        steering=ledger.steering(training_id),
        running=next(iter(ledger.running_shards(training_id)), None),
        failure=next(iter(ledger.failures(training_id)), None),
        retry=next(iter(ledger.retries(training_id, most=1)), None),
        counts=counts,
        model=TrainReceipt.from_json(recorded).model if recorded else None,
        is_there=not looks or not recorded or model_of(training.spec) is not None,
        workers=tuple(one for one in present.workers if one.queue == TRAIN_QUEUE and one.activity != "stopping"),
        machines=tuple(machine for machine in present.machines if machine.may_serve(TRAINING)),
        unable=tuple(machine for machine in present.machines if machine.failed_to_serve(TRAINING)),
        has_finalizer=any(one.serves(training_id) for one in present.finalizers),
        reached=ledger.reached(training_id, WHOLE),
    )
