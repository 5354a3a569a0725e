"""Errors of loading and running a model."""


class ModelError(Exception):
    """The model cannot be served. The message says why and what to do."""


class NoRoom(ModelError):
    """The model does not fit on the device, beside what is there already."""


class ParityError(ModelError):
    """The optimised model does not reproduce the scores of the plain one."""


class DeviceFault(RuntimeError):
    """The device or its driver failed. The process can no longer be trusted and must be replaced."""
