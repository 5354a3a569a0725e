"""What may be chosen where a few values are possible. Imports nothing heavy: command lines, settings and specs share it."""

from typing import Literal

Dtype = Literal["auto", "float32", "bfloat16", "float16", "int8", "fp8"]
Function = Literal["none", "sigmoid", "softmax"]  # transformers' `function_to_apply`
Backend = Literal["auto", "padded", "packed"]
SpotCloud = Literal["aws", "gcp", "azure"]
LogLevel = Literal["DEBUG", "INFO", "WARNING", "ERROR"]
