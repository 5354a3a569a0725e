"""The most memory that this process has taken: of the GPU if there is one, else of the machine."""

import resource
import sys

import torch


def peak_memory_bytes() -> int:
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        return max(torch.cuda.max_memory_allocated(index) for index in range(torch.cuda.device_count()))
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
