"""Give a scorer the token budget that `worker tune` found best on this machine."""

import logging
from dataclasses import replace
from pathlib import Path

from fleet.process.settings import Settings
from fleet.process.tuned import Key, find_tuned
from fleet.run.sequence_classifier import revision_of_folder
from worker.scoring.sequence_classifier import SequenceClassifier

logger = logging.getLogger(__name__)


def with_tuned_budget(scorer: SequenceClassifier, settings: Settings) -> SequenceClassifier:
    """Apply the budget that `worker tune` stored for this scorer and device, unless the settings name one.

    Works for pinned models only: a folder, or a Hub model at a commit.
    """
    revision = settings.model_revision or _folder_revision(settings.model)
    if settings.max_batch_tokens or not revision:
        return scorer
    tuned = find_tuned(settings.state_dir, key_of(scorer, settings.model, revision))
    if tuned is None:
        return scorer
    logger.info(
        "Using batches of %d tokens, which `worker tune` found best here on %s", tuned.max_batch_tokens, tuned.date
    )
    return replace(scorer, max_batch_tokens=tuned.max_batch_tokens)


def key_of(scorer: SequenceClassifier, model: str, revision: str) -> Key:
    return Key(
        model=model,
        revision=revision,
        device=scorer.info.device,
        dtype=scorer.dtype,
        backend=scorer.backend.name,
    )


def _folder_revision(model: str) -> str | None:
    return revision_of_folder(Path(model)) if Path(model).is_dir() else None
