"""The places of this machine at which a worker runs: each GPU, or the CPU, with its share of the cores."""

import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field

from fleet.cores import Cores, usable_cores
from fleet.errors import UsageError

ALL = "all"
_LIST_SECONDS = 30.0  # nvidia-smi takes seconds if the driver is not loaded


@dataclass(frozen=True, kw_only=True)
class Place:
    """`environment` binds a worker to its device and its share of the cores."""

    name: str
    environment: dict[str, str] = field(default_factory=dict)


def find_places(
    *,
    gpus: str = ALL,
    workers: int | None = None,
    device: str = "auto",
    name: str | None = None,
    cores: Cores | None = None,
) -> list[Place]:
    """The place of each worker. With more `workers` than GPUs they take turns; on a CPU they share the cores.

    `gpus` is `all`, the number of GPUs to use, or their numbers with commas between them. A `name` replaces the default names
    `gpu0`, `gpu1`, … and `worker`. Raises UsageError if a GPU that is asked for is not there.
    """
    if name is not None and "@" in name:
        raise UsageError(f"--name {name}: a name cannot have an @, which comes before the host's name.")
    if gpus not in (ALL, "0") and device not in ("auto", "cuda"):
        raise UsageError(f"--gpus {gpus} and --device {device} contradict each other. Leave one out.")
    devices = _gpus(gpus) if device in ("auto", "cuda") else []
    count = workers or len(devices) or 1
    names = _names(name, devices, count)
    threads = _threads_of_each(count, cores or usable_cores(), on_gpu=bool(devices))
    return [
        Place(
            name=names[number],
            environment={**threads, **({"CUDA_VISIBLE_DEVICES": devices[number % len(devices)]} if devices else {})},
        )
        for number in range(count)
    ]


def _gpus(wanted: str) -> list[str]:
    """What CUDA_VISIBLE_DEVICES is for each wanted GPU."""
    found = visible_gpus()
    if wanted == ALL:
        return found
    numbers = [word.strip() for word in wanted.split(",") if word.strip()]
    if not numbers or not all(number.isascii() and number.isdigit() for number in numbers):
        raise UsageError(f"--gpus must be all, a number of GPUs, or a list such as 0,2, not {wanted!r}.")
    chosen = [int(number) for number in numbers] if "," in wanted else list(range(int(numbers[0])))
    if missing := [number for number in chosen if number >= len(found)]:
        raise UsageError(f"--gpus {wanted}: there is no GPU {missing[0]} here. {_what_there_is(found)}")
    return [found[number] for number in chosen]


def visible_gpus() -> list[str]:
    """The GPUs that this process may use, by number or UUID. CUDA_VISIBLE_DEVICES may limit them, as Slurm does."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return [gpu.strip() for gpu in visible.split(",") if gpu.strip() not in ("", "-1")]
    if shutil.which("nvidia-smi") is None:
        return []
    listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=False, timeout=_LIST_SECONDS)
    return [
        str(number) for number, _ in enumerate(line for line in listed.stdout.splitlines() if line.startswith("GPU "))
    ]


def _what_there_is(found: Sequence[str]) -> str:
    if not found:
        return "nvidia-smi lists none. Leave --gpus out to score on the CPU."
    return f"There are {len(found)}, numbered from 0."


def _names(name: str | None, devices: Sequence[str], count: int) -> list[str]:
    if devices:
        # A UUID is too long for a name; the number among the visible GPUs is what --gpus takes.
        own = [f"gpu{gpu if gpu.isdigit() else number}" for number, gpu in enumerate(devices)]
        turns = [
            own[number % len(own)] + (f"-{number // len(own)}" if number >= len(own) else "") for number in range(count)
        ]
    else:
        turns = ["worker"] if count == 1 else [f"worker-{number}" for number in range(count)]
    if name is None:
        return turns
    return [name] if count == 1 else [f"{name}-{turn.removeprefix('worker-')}" for turn in turns]


def _threads_of_each(workers: int, cores: Cores, *, on_gpu: bool) -> dict[str, str]:
    """The threads of a worker's model and tokenizer, unless the user has set them."""
    share = max(1, cores.usable // workers)
    model = share if on_gpu else max(1, cores.physical // workers)
    threads = {"SHARDSIFT_THREADS": model, "OMP_NUM_THREADS": model, "RAYON_NUM_THREADS": share}
    return {name: str(count) for name, count in threads.items() if not os.environ.get(name)}
