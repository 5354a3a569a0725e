"""The work of an attempt at a training: train, publish the model folder, and record what was measured."""

import logging
import os
import time
from dataclasses import dataclass
from functools import cached_property, partial
from importlib.metadata import version
from pathlib import Path

import redis
import torch
from celery import Task

from fleet.errors import (
    Cancelled,
    LeaseLost,
    RunUnknown,
    ShardError,
    ShardsiftError,
    Stopped,
    TransientError,
    UsageError,
)
from fleet.ledger import Claim, Ledger
from fleet.receipt import Provenance
from fleet.storage.model_output import model_output
from fleet.training.data import unchanged_data
from fleet.training.model import TrainedModel
from fleet.training.receipt import TrainReceipt
from fleet.training.task import FleetTraining
from fleet.training.trained import model_of
from worker.scoring import DeviceFault
from worker.scoring.device import choose_device, device_name
from worker.scoring.errors import is_device_fault
from worker.service.attempt import Done, progress_of
from worker.service.child import Child
from worker.service.ipc import FOLDER
from worker.service.kept_checkpoints import drop_unneeded
from worker.service.serving import end_without_rank
from worker.service.training_lease import TrainingLease
from worker.service.waiting import wait_for_redis
from worker.training.attempt_checkpoints import AttemptCheckpoints, attempt_checkpoints
from worker.training.attempt_name import AttemptName
from worker.training.place import Devices, TrainPlace
from worker.training.report import TrainReport
from worker.training.saving import drop_partial
from worker.training.stopped import TrainingStopped
from worker.training.train import train

_VERSIONS = ("shardsift", "torch", "transformers")
logger = logging.getLogger(__name__)


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
        with self._lease() as lease:  # also while the Hub is asked, which may take long
            drop_unneeded(self.ledger, self.child.settings.scratch_dir)
            model = self._published() or self._trained(lease)
            receipt = TrainReceipt(
                output_uri=self._output,
                size_bytes=model_output(self._output).size_bytes(),
                model=model,
                provenance=self._provenance(model, began),
            )
            wait_for_redis(lambda: self.ledger.complete(self.claim, receipt), self.child.stopping)
        self._drop_checkpoints()
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
        return model_of(self.claim.spec.spec)

    def _lease(self) -> TrainingLease:
        child = self.child
        return TrainingLease(
            self.ledger,
            self.claim,
            device=device_name(choose_device(child.settings.device)),
            stopping=child.stopping,
            report=progress_of(self.task),
            report_seconds=child.settings.progress_seconds,
            watchdog=child.watchdog,
        )

    def _trained(self, lease: TrainingLease) -> TrainedModel:
        try:
            report = self._train(lease)
        except TrainingStopped as stop:
            lease.tell_stop()
            raise Stopped(f"{self.claim.what} was given back: {lease.why_stopped}.") from stop
        except Cancelled:
            raise
        except LeaseLost:
            self._withdraw_checkpoints()
            raise
        except UsageError as error:
            raise _as_of_fleet(error) from error
        except OSError as error:
            raise TransientError(f"{type(error).__name__}: {error}") from error
        model = self._published()
        if model is None and report is None:
            raise ShardError(
                f"{self._output} has the model of an equal training, and its training.json is not of {self.claim.run_id}. "
                "Delete its files, or name another --output."
            )
        if model is None:
            raise LeaseLost(f"{self.claim.what} was trained, but the model at {self._output} is not its own.")
        return model

    def _train(self, lease: TrainingLease) -> TrainReport | None:
        try:
            return train(self.claim.spec.spec, self._place(lease), tell=partial(self._tell, lease))
        except (TrainingStopped, ShardsiftError):
            raise
        except Exception as error:
            if isinstance(error, RuntimeError) and is_device_fault(error):
                raise DeviceFault(str(error)) from error
            lease.confirm()  # a newer attempt takes the checkpoints away, and to write one then fails
            raise

    def _place(self, lease: TrainingLease) -> TrainPlace:
        lease.confirm()  # an attempt that was frozen since its claim must not take over the folder of a later one
        return TrainPlace(
            device=self.child.settings.device,
            devices=_devices(self.child),
            checkpoints=self._checkpoints.take_over(),
            copies=self._checkpoints.copies,
            loader_processes=self.claim.spec.loader_processes,
            watcher=lease,
            reading=lambda: unchanged_data(self.claim.spec.spec, self.claim.shard),
            attempt=f"{self.claim.token}.",
        )

    @cached_property
    def _checkpoints(self) -> AttemptCheckpoints:
        data, token = self.claim.shard.identity, self.claim.token
        attempt = AttemptName.of(self.claim.run_id, data_identity=data, token=token)
        return attempt_checkpoints(self.claim.spec.checkpoints_uri, attempt, self.child.settings.scratch_dir)

    def _drop_checkpoints(self) -> None:
        """They are not needed any more. Copies that cannot be deleted stay."""
        try:
            drop_partial(model_output(self._output), self._checkpoints.folder)
            self._checkpoints.drop()
        except ShardsiftError as error:
            logger.warning("%s They are not needed any more.", error, extra=self.claim.log_fields)

    def _withdraw_checkpoints(self) -> None:
        try:
            self._checkpoints.withdraw(is_done=self.ledger.is_done(self.claim))
        except (ShardsiftError, redis.RedisError) as error:
            logger.warning("%s", error, extra=self.claim.log_fields)

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


def _devices(child: Child) -> Devices:
    """Those of this worker's seat. On a CPU, as many processes, as for a divided model."""
    count = child.settings.gpus_per_worker
    if child.device_type == "cuda":
        count = min(count, torch.cuda.device_count())
    elif child.device_type != "cpu":
        count = 1
    folder = os.environ.get(FOLDER)  # the worker removes what its children leave there
    return Devices(count=count, scratch_dir=Path(folder) if folder else None, on_lost_rank=end_without_rank)


def _as_of_fleet(error: UsageError) -> ShardError | TransientError:
    """A disk, a network or a service may come back, here or on another machine. Anything else stays wrong."""
    cause = error.__cause__
    if isinstance(cause, TransientError):
        return TransientError(str(error), retry_after_seconds=cause.retry_after_seconds, of_machine=cause.of_machine)
    if isinstance(cause, OSError):
        return TransientError(str(error))
    return ShardError(str(error), of_machine=isinstance(cause, ShardError) and cause.of_machine)
