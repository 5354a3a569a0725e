"""Load the scorer that a worker serves, with the token budget from `worker tune`. Only for a child: imports torch."""

import logging
import os
from multiprocessing import process
from pathlib import Path
from typing import Any, NoReturn

import platformdirs

from shardsift.fleet.errors import ExitCode
from shardsift.fleet.process.settings import Settings
from shardsift.fleet.process.tuned import Key, find_tuned
from shardsift.fleet.run.model import Model
from shardsift.fleet.scorers.sequence_classifier import unchanged_folder
from shardsift.worker.scoring.device import release_memory
from shardsift.worker.scoring.gpu_notes import GpuNotes
from shardsift.worker.scoring.load import load_classifier
from shardsift.worker.scoring.quiet import quiet_transformers
from shardsift.worker.scoring.sequence_classifier import SequenceClassifier
from shardsift.worker.scoring.sharded import Sharding
from shardsift.worker.service.ipc import FOLDER

logger = logging.getLogger(__name__)


def load_served_model(model: Model, settings: Settings) -> SequenceClassifier:
    """Load a model with the token budget that `worker tune` found best on this device.

    Raises the same errors as `load_untuned_model`.
    """
    scorer = load_untuned_model(model, settings)
    tuned = with_tuned_budget(scorer, model, settings)
    if tuned is scorer or tuned.backend.name != "graphed":
        return tuned
    settings = settings.model_copy(update={"max_batch_tokens": tuned.max_batch_tokens})
    del scorer, tuned
    release_memory()
    return load_untuned_model(model, settings)  # with graphs of this size


def load_untuned_model(model: Model, settings: Settings) -> SequenceClassifier:
    """Load a model without the token budget from `worker tune`.

    A model on several GPUs is run by several processes (ranks). In a worker, it keeps its temporary files in the
    worker's folder, and this process exits if a rank dies.

    Raises ModelError, or ParityError if the fast backend does not reproduce the model's own scores. Raises DeviceLost
    if the GPU failed. Raises ShardsiftError if the files of a model folder are not those of its revision.
    """
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", platformdirs.user_cache_dir("shardsift"))  # else: /tmp
    folder = os.environ.get(FOLDER)
    if folder:
        _let_multiprocessing_start_ranks()
    with quiet_transformers(), unchanged_folder(model):
        return load_classifier(
            model.name,
            settings.dtype,
            revision=None if model.is_folder else model.revision,
            first=settings.first_dtypes.get(model.name),
            device=settings.device,
            max_batch_tokens=settings.max_batch_tokens,
            threads=settings.threads,
            backend=settings.backend,
            compile=settings.compile,
            parity_rows=settings.parity_rows,
            sharding=Sharding(
                devices=settings.gpus_per_worker,
                way=settings.sharding,
                scratch_dir=Path(folder) if folder else settings.scratch_dir,
                on_lost_rank=_end_without_rank if folder else None,
            ),
            notes=GpuNotes(folder=settings.state_dir / "gpu", worker_folder=Path(folder) if folder else None),
        )


def with_tuned_budget(scorer: SequenceClassifier, model: Model, settings: Settings) -> SequenceClassifier:
    """Apply the budget that `worker tune` stored for this scorer and device, unless the settings name one."""
    if settings.max_batch_tokens:
        return scorer
    tuned = find_tuned(settings.state_dir, key_of(scorer, model))
    if tuned is None:
        return scorer
    logger.info(
        "Using batches of %d tokens, which `worker tune` found best here on %s", tuned.max_batch_tokens, tuned.date
    )
    return scorer.with_budget(tuned.max_batch_tokens)


def key_of(scorer: SequenceClassifier, model: Model) -> Key:
    return Key(
        model=model.name,
        revision=model.revision,
        device=scorer.info.device,
        dtype=scorer.dtype,
        backend=scorer.backend.name,
    )


def _let_multiprocessing_start_ranks() -> None:
    """Unset the daemon flag of Celery's process, because multiprocessing does not let daemons start processes."""
    current: Any = process.current_process()
    current._config |= {"daemon": False, "authkey": process.AuthenticationString(current.authkey)}  # type: ignore[attr-defined]


def _end_without_rank(reason: str) -> NoReturn:
    """Exit, because a model on several GPUs cannot run without one of its ranks (processes).

    The parent queues the shard again, and Celery starts a new child. Runs in a thread of its own, because with NCCL
    the computing thread waits for the lost rank.
    """
    logger.error("%s A new process replaces this one and its ranks.", reason)
    os._exit(ExitCode.DEVICE_FAULT)
