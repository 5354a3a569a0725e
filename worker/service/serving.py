"""Load the scorer that a worker serves. Imports torch, so only the child may import it."""

from fleet.model import Model
from fleet.settings import Settings
from worker.loading import load_model
from worker.scoring import SequenceClassifier
from worker.tuning.apply import with_tuned_budget


def load_served_model(model: Model, settings: Settings) -> SequenceClassifier:
    """The model, which is that of the settings, with the token budget that `worker tune` found best on this device.

    Raises what `load_model` raises.
    """
    return with_tuned_budget(load_model(settings), settings)
