"""Why a model cannot be served, or not go on."""


class ModelError(Exception):
    """The model cannot be served; the message says why, and what would."""


class ParityError(ModelError):
    """The fast way of scoring does not give the model's own scores."""


class DeviceFault(RuntimeError):
    """The device or its driver failed. Its process cannot be trusted any more, and is to be replaced."""
