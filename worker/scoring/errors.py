"""Errors of loading and running a model."""


class ModelError(Exception):
    """The model cannot be served. The message says why and what to do."""


class NoRoom(ModelError):
    """The model does not fit on the device, beside what is there already."""


class ParityError(ModelError):
    """The optimised model does not reproduce the scores of the plain one."""


class DeviceFault(RuntimeError):
    """The device or its driver failed. The process can no longer be trusted and must be replaced."""


_SIGNS_OF_A_FAULT = ("CUDA error", "cuDNN error", "CUBLAS_STATUS", "CUDNN_STATUS", "HIP error")


def is_device_fault(error: RuntimeError) -> bool:
    """Whether torch says that the device or its driver failed. A lack of its memory is another error."""
    return isinstance(error, DeviceFault) or any(sign in str(error) for sign in _SIGNS_OF_A_FAULT)
