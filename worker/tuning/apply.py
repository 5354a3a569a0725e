"""Give a scorer the token budget that was found best for it on this machine."""

import logging
from dataclasses import replace
from pathlib import Path

from fleet.sequence_classifier import revision_of_folder
from fleet.settings import Settings
from worker.scoring import SequenceClassifier
from worker.tuning.store import find_tuned, key_of

logger = logging.getLogger(__name__)


def with_tuned_budget(scorer: SequenceClassifier, settings: Settings) -> SequenceClassifier:
    """Where the settings leave the token budget open: what `worker tune` found best for this scorer on this device.

    For a model that is pinned: a folder, or a Hub model at a commit.
    """
    revision = settings.model_revision or _folder_revision(settings.model)
    if settings.max_batch_tokens or not revision:
        return scorer
    tuned = find_tuned(settings.state_dir, key_of(scorer, settings.model, revision))
    if tuned is None:
        return scorer
    logger.info("Batches of %d tokens, which `worker tune` found best here at %s", tuned.max_batch_tokens, tuned.date)
    return replace(scorer, max_batch_tokens=tuned.max_batch_tokens)


def _folder_revision(model: str) -> str | None:
    return revision_of_folder(Path(model)) if Path(model).is_dir() else None
