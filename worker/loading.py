"""Load the model that the settings name. Knows no queue."""

import os
from collections.abc import Callable
from pathlib import Path

import platformdirs

from fleet.process.settings import Settings
from fleet.run.model import is_folder_revision
from fleet.run.sequence_classifier import unchanged_folder
from worker.scoring import SequenceClassifier, load_scorer
from worker.scoring.quiet import quiet_transformers
from worker.scoring.sharded.sharding import Sharding


def load_model(
    settings: Settings, *, scratch_dir: Path | None = None, on_lost_rank: Callable[[str], None] | None = None
) -> SequenceClassifier:
    """Load the model. A model on several GPUs uses `scratch_dir`, and `on_lost_rank` as `Sharding` describes it.

    Raises ModelError, or ParityError if the fast backend does not reproduce the model's own scores. Raises ShardsiftError if the
    files of a model folder are not those of the revision in the settings.
    """
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", platformdirs.user_cache_dir("shardsift"))  # else: /tmp
    revision = settings.model_revision
    with quiet_transformers(), unchanged_folder(settings.model, revision):
        return load_scorer(
            settings.model,
            settings.dtype,
            revision=None if revision and is_folder_revision(revision) else revision,
            device=settings.device,
            max_batch_tokens=settings.max_batch_tokens,
            threads=settings.threads,
            backend=settings.backend,
            compile=settings.compile,
            parity_rows=settings.parity_rows,
            sharding=Sharding(
                devices=settings.gpus_per_worker,
                way=settings.sharding,
                scratch_dir=scratch_dir or settings.scratch_dir,
                on_lost_rank=on_lost_rank,
            ),
        )
