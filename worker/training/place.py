"""Where a training runs, and how its rows are loaded. Does not change the weights."""

import importlib.util
import os
import resource
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from fleet.errors import UsageError


@dataclass(frozen=True, kw_only=True)
class TrainPlace:
    device: str = "auto"
    checkpoints: Path | None = None  # folder; None: beside the output
    resume: bool = True  # from the last checkpoint, if there is one
    loader_processes: int = 0  # that prepare batches beside the training; 0: the training itself does

    @property
    def folder(self) -> Path:
        """Of the checkpoints, once it is known."""
        assert self.checkpoints is not None
        return self.checkpoints

    def beside(self, output_uri: str, name: str) -> "TrainPlace":
        """With a folder for the checkpoints: beside the output, or here if that is elsewhere."""
        output = Path(name if "://" in output_uri else output_uri)
        folder = self.checkpoints or output.expanduser().with_name(f"{name}.checkpoints")
        return replace(self, checkpoints=folder.expanduser().absolute())


# Which of several processes this is. `torchrun` and `accelerate launch` start one for each GPU. Knows no torch.


def process_count() -> int:
    return int(os.environ.get("WORLD_SIZE", 1))


def is_first_process() -> bool:
    """Only the first one writes and prints."""
    return int(os.environ.get("RANK", 0)) == 0


# The most memory that this process has taken: of the GPU if there is one, else of the machine.


def peak_memory_bytes() -> int:
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        return max(torch.cuda.max_memory_allocated(index) for index in range(torch.cuda.device_count()))
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


# Whether the packages that training needs are installed. Imports none of them.

_OF_WORKER = {"torch": "torch", "transformers": "transformers"}
_OF_TRAIN = {"sklearn": "scikit-learn", "accelerate": "accelerate", "matplotlib": "matplotlib"}


def check_installed() -> None:
    """Raises UsageError if one is missing, with the command that installs it."""
    without, missing = _missing(_OF_WORKER), _missing(_OF_TRAIN)
    if without or missing:
        extras = "worker,train" if without else "train"
        raise UsageError(
            f"Training needs {' and '.join([*without, *missing])}. Install it with: pip install 'shardsift[{extras}]'"
        )


def _missing(packages: dict[str, str]) -> list[str]:
    return [name for module, name in packages.items() if not importlib.util.find_spec(module)]
