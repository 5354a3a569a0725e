"""Load the model that the settings name. Knows no queue."""

import os

import platformdirs
from transformers.utils import logging as transformers_logging

from fleet.model import is_folder_revision
from fleet.sequence_classifier import unchanged_folder
from fleet.settings import Settings
from worker.scoring import SequenceClassifier, load_scorer


def load_model(settings: Settings) -> SequenceClassifier:
    """Load the model. Raises ModelError, or ParityError if the fast backend does not reproduce the model's own scores.

    Raises ShardsiftError if the files of a model folder are not those of the revision in the settings.
    """
    _quieten_transformers()
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", platformdirs.user_cache_dir("shardsift"))  # else: /tmp
    revision = settings.model_revision
    with unchanged_folder(settings.model, revision):
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
        )


def _quieten_transformers() -> None:
    """Turn off progress bars and warnings: a worker's log is not a terminal."""
    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()
