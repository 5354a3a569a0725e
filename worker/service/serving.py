"""Load the scorer that a worker serves. Imports torch, so only the child may import it."""

from fleet.model import Model
from fleet.settings import Settings
from worker.loading import load_model
from worker.scoring import SequenceClassifier
from worker.tuning.apply import with_tuned_budget


def load_served_model(model: Model, settings: Settings) -> SequenceClassifier:
    """Load the model of the settings, with the token budget that `worker tune` found best on this device.

    Raises the same errors as `load_model`.
    """
    return with_tuned_budget(load_model(settings), settings)
