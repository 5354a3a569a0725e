"""The work of an attempt at a training: train, publish the model folder, and record what was measured."""

import logging
import shutil
import time
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TypedDict

from celery import Task

from fleet.errors import Cancelled, LeaseLost, RunUnknown, ShardError, Stopped, TransientError, UsageError
from fleet.ledger import Claim, Ledger
from fleet.receipt import Provenance
from fleet.storage.identity import check_unchanged
from fleet.training.model import TrainedModel, trained_model_at
from fleet.training.receipt import TrainReceipt
from fleet.training.task import FleetTraining
from worker.scoring.device import choose_device, device_name
from worker.service.attempt import Done, show_progress
from worker.service.child import Child
from worker.service.training_lease import TrainingLease
from worker.service.waiting import wait_for_redis
from worker.training.attempt_folder import drop_attempts, own_folder, take_over
from worker.training.place import TrainPlace
from worker.training.saving import drop_partial
from worker.training.stop import TrainingStopped
from worker.training.train import train

_VERSIONS = ("shardsift", "torch", "transformers")
logger = logging.getLogger(__name__)


class _Checkpoints(TypedDict):
    root: Path
    data_identity: str
    token: str


@dataclass(frozen=True, kw_only=True)
class TrainingWork:
    """`worker` is the owner of the claim."""

    claim: Claim[FleetTraining]
    ledger: Ledger[FleetTraining]
    child: Child
    task: Task
    worker: str

    def do(self) -> Done:
        began = time.time()
        model = self._published() or self._trained()
        receipt = TrainReceipt(
            output_uri=self._output,
            size_bytes=sum(file.stat().st_size for file in Path(self._output).rglob("*") if file.is_file()),
            model=model,
            provenance=self._provenance(model, began),
        )
        wait_for_redis(lambda: self.ledger.complete(self.claim, receipt), self.child.stopping)
        drop_attempts(Path(self.claim.spec.checkpoints_uri))
        drop_partial(Path(self._output))
        figures = "; ".join(f"{name} {value}" for name, value in model.lines[:3])
        line = f"published at {self._output}: {figures}"
        return Done(line=line, logged=line, fields={"seconds": round(time.time() - began, 1)})

    def on_unrecorded(self, unknown: RunUnknown) -> str:
        return f"{self.claim.what} is published at {self._output}."

    def end(self, outcome: str, error: Exception | None = None) -> None: ...

    def close(self) -> None: ...

    @property
    def _output(self) -> str:
        return self.claim.spec.spec.output_uri

    def _published(self) -> TrainedModel | None:
        """The model, if an earlier attempt published it and ended before it could record that."""
        model = trained_model_at(self._output)
        return model if model and model.training_id == self.claim.run_id else None

    def _trained(self) -> TrainedModel:
        child, training = self.child, self.claim.spec
        lease = TrainingLease(
            self.ledger,
            self.claim,
            device=device_name(choose_device(child.settings.device)),
            stopping=child.stopping,
            report=lambda line: show_progress(self.task, line),
            report_seconds=child.settings.progress_seconds,
            watchdog=child.watchdog,
        )
        with lease:
            try:
                check_unchanged(self.claim.shard)
                train(training.spec, self._place(lease), tell=partial(self._tell, lease))
            except TrainingStopped as stop:
                raise Stopped(f"{self.claim.what} was given back: {lease.why_stopped}.") from stop
            except Cancelled:
                raise
            except LeaseLost:  # another attempt has taken over what was in this folder
                shutil.rmtree(own_folder(**self._checkpoints), ignore_errors=True)
                raise
            except UsageError as error:
                raise _as_of_fleet(error) from error
            except OSError as error:
                raise TransientError(f"{type(error).__name__}: {error}") from error
        model = self._published()
        if model is None:
            raise LeaseLost(f"{self.claim.what} was trained, but the model at {self._output} is not its own.")
        return model

    def _place(self, lease: TrainingLease) -> TrainPlace:
        return TrainPlace(
            device=self.child.settings.device,
            checkpoints=take_over(**self._checkpoints),
            loader_processes=self.claim.spec.loader_processes,
            watcher=lease,
            attempt=f"{self.claim.token}.",
        )

    @property
    def _checkpoints(self) -> _Checkpoints:
        root = Path(self.claim.spec.checkpoints_uri)
        return {"root": root, "data_identity": self.claim.shard.identity, "token": self.claim.token}

    def _tell(self, lease: TrainingLease, line: str) -> None:
        logger.info("%s: %s", self.claim.what, line, extra=self.claim.log_fields)
        lease.on_sign_of_life(line)

    def _provenance(self, model: TrainedModel, began: float) -> Provenance:
        return Provenance(
            worker=self.worker,
            attempt=self.claim.attempt,
            device=model.device,
            versions={name: version(name) for name in _VERSIONS},
            started_at=began,
            finished_at=time.time(),
        )


def _as_of_fleet(error: UsageError) -> ShardError | TransientError:
    """A disk, a network or a service may come back, here or on another machine. Anything else stays wrong."""
    if isinstance(error.__cause__, (TransientError, OSError)):
        return TransientError(str(error))
    return ShardError(str(error))
