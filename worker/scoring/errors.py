"""Why a model cannot be served."""


class ModelError(Exception):
    """The model cannot be served; the message says why, and what would."""


class ParityError(ModelError):
    """The fast way of scoring does not give the model's own scores."""
