"""What may be chosen where a few values are possible. Imports nothing heavy: command lines, settings and specs share it."""

import re
from typing import Literal

Dtype = Literal["auto", "float32", "bfloat16", "float16", "int8", "fp8"]
Function = Literal["none", "sigmoid", "softmax"]  # transformers' `function_to_apply`
Backend = Literal["auto", "padded", "packed"]
SpotCloud = Literal["aws", "gcp", "azure"]
LogLevel = Literal["DEBUG", "INFO", "WARNING", "ERROR"]
DEVICES = "auto, cpu, mps, cuda or cuda:N"


def is_device(name: str) -> bool:
    """Whether this is one of DEVICES; not whether it is on this machine."""
    return re.fullmatch(r"auto|cpu|mps|cuda(:\d+)?", name) is not None
