"""Allowed values and defaults of options. Imports nothing heavy, because every command line imports it."""

import re
from typing import Literal

Dtype = Literal["auto", "float32", "bfloat16", "float16"]
Function = Literal["none", "sigmoid", "softmax"]  # transformers' `function_to_apply`
Pool = Literal["max", "mean"]
BackendName = Literal["auto", "packed", "padded"]
WayToShard = Literal["auto", "layers", "tensor"]
SpotCloud = Literal["aws", "gcp", "azure"]
LogFormat = Literal["text", "json"]
DEVICES = "auto, cpu, mps, cuda or cuda:N"
PASSAGES = "head, head+tail, head+middle+tail, stride:N or finepdfs"


def passages_and_pool(text: str) -> tuple[str, Pool]:
    """Split a value of --passages, such as `stride:256:mean`, into the choice of passages and the pool.

    The pool is `mean` if the value ends with `:mean`, otherwise `max`.
    """
    passages = text.removesuffix(":mean")
    return passages, "max" if passages == text else "mean"


def is_passages(name: str) -> bool:
    return re.fullmatch(r"head|head\+tail|head\+middle\+tail|stride:[1-9]\d*|finepdfs", name) is not None


def is_device(name: str) -> bool:
    """Return whether the name is one of DEVICES. Does not check that this machine has the device."""
    return re.fullmatch(r"auto|cpu|mps|cuda(:\d+)?", name) is not None


# Defaults.

CRAWLS_DATASET = "HuggingFaceFW/fineweb"  # its files are data/<crawl>/*.parquet
DEFAULT_TEXT_COLUMN = "text"
DEFAULT_LABEL_COLUMN = "label"  # of training data
DEFAULT_MODEL = "HuggingFaceFW/fineweb-edu-classifier"
