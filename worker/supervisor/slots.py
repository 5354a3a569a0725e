"""Divide this machine into slots, one per worker. A slot is one or more GPUs, or the CPU, and a share of the cores."""

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from shardsift.fleet.errors import UsageError
from shardsift.fleet.process.cores import cpu_count
from shardsift.fleet.process.wording import counted
from shardsift.worker.scoring.gpus import VISIBLE, visible_gpus

ALL = "all"
_NAME = re.compile(r"[\w-][\w.-]{0,63}")  # used in file names, and before the @ in the worker's name


@dataclass(frozen=True, kw_only=True)
class Slot:
    """A slot for a worker. `environment` binds the worker to its device and its share of the cores."""

    name: str
    environment: dict[str, str] = field(default_factory=dict)

    @property
    def devices(self) -> tuple[str, ...]:
        """The numbers or UUIDs of the GPUs, or `cpu`."""
        return tuple(self.environment.get(VISIBLE, "cpu").split(","))


def find_slots(
    *,
    gpus: str = ALL,
    workers: int | None = None,
    gpus_per_worker: int = 1,
    device: str = "auto",
    name: str | None = None,
) -> list[Slot]:
    """Make a slot for each worker: a GPU, or `gpus_per_worker` GPUs.

    `workers` defaults to one per such group of GPUs, or one on the CPU. If there are more, several share a group, or
    the cores of the CPU. `gpus` is `all`, the number of GPUs to use, or their numbers separated by commas. Slots are
    called `gpu0`, `gpu1`, … (`gpus0-1` for two GPUs) or `worker`. With `name`, a single slot is called that, and the
    names of several begin with it. Raises UsageError for options that contradict each other, for a missing GPU, and for
    GPUs that cannot be divided evenly. Does not check that torch finds `device`: each worker does.
    """
    if name is not None and not _NAME.fullmatch(name):
        raise UsageError(f"--name {name}: a name has letters, digits, and any of . _ - between them, 64 at most.")
    if gpus not in (ALL, "0") and device not in ("auto", "cuda"):
        raise UsageError(f"--gpus {gpus} and --device {device} contradict each other. Leave one out.")
    if gpus == "0" and device.startswith("cuda"):
        raise UsageError(f"--gpus 0 is the CPU, and --device {device} a GPU. Leave one out.")
    devices = _gpus(gpus) if device in ("auto", "cuda") else []
    if gpus_per_worker > 1 and any(gpu.startswith("MIG-") for gpu in devices):
        raise UsageError(f"--gpus-per-worker {gpus_per_worker}: a process sees only one slice of a GPU. Leave it out.")
    _check_groups(len(devices), gpus_per_worker, device=device)
    groups = [devices[first : first + gpus_per_worker] for first in range(0, len(devices), gpus_per_worker)]
    count = workers or len(groups) or 1
    names = _names(name, groups, count)
    threads = _threads_of_each(count, on_gpu=bool(devices))
    return [
        Slot(
            name=names[number],
            environment={**threads, **({VISIBLE: ",".join(groups[number % len(groups)])} if groups else {})},
        )
        for number in range(count)
    ]


def _gpus(wanted: str) -> list[str]:
    """Return the value of CUDA_VISIBLE_DEVICES for each wanted GPU."""
    found = visible_gpus()
    if wanted == ALL:
        return found
    numbers = [word.strip() for word in wanted.split(",") if word.strip()]
    if not numbers or not all(number.isascii() and number.isdigit() for number in numbers):
        raise UsageError(f"--gpus must be all, a number of GPUs, or a list such as 0,2, not {wanted!r}.")
    chosen = [int(number) for number in numbers] if "," in wanted else list(range(int(numbers[0])))
    if missing := [number for number in chosen if number >= len(found)]:
        none = "nvidia-smi lists none. Leave --gpus out to score on the CPU."
        there = f"There are {len(found)}, numbered from 0." if found else none
        raise UsageError(f"--gpus {wanted}: there is no GPU {missing[0]} here. {there}")
    return [found[number] for number in chosen]


def _names(name: str | None, groups: Sequence[Sequence[str]], count: int) -> list[str]:
    if groups:
        # A UUID is too long for a name, so use the number that --gpus takes.
        devices = [gpu for group in groups for gpu in group]
        numbers = {gpu: gpu if gpu.isdigit() else str(number) for number, gpu in enumerate(devices)}
        own = [f"gpu{'s' if len(group) > 1 else ''}{'-'.join(numbers[gpu] for gpu in group)}" for group in groups]
        turns = [
            own[number % len(own)] + (f"-{number // len(own)}" if number >= len(own) else "") for number in range(count)
        ]
    else:
        turns = ["worker"] if count == 1 else [f"worker-{number}" for number in range(count)]
    if name is None:
        return turns
    return [name] if count == 1 else [f"{name}-{turn.removeprefix('worker-')}" for turn in turns]


def _threads_of_each(workers: int, *, on_gpu: bool) -> dict[str, str]:
    """Return variables for the numbers of threads of each worker, except for those that the user has set.

    On a CPU, torch is fastest with one thread per physical core.
    """
    share = max(1, cpu_count() // workers)
    model = share if on_gpu else max(1, cpu_count(only_physical_cores=True) // workers)
    threads = {"SHARDSIFT_THREADS": model, "OMP_NUM_THREADS": model, "RAYON_NUM_THREADS": share}
    threads["TORCHINDUCTOR_COMPILE_THREADS"] = min(share, 32)
    return {name: str(count) for name, count in threads.items() if not os.environ.get(name)}


def _check_groups(gpus: int, gpus_per_worker: int, *, device: str) -> None:
    """Raise UsageError if the GPUs cannot be divided into groups. On a CPU, a group consists of processes."""
    if gpus_per_worker == 1 or device == "cpu":
        return
    if device not in ("auto", "cuda"):
        raise UsageError(
            f"--gpus-per-worker {gpus_per_worker} and --device {device} contradict each other. Leave one out."
        )
    if not gpus:
        raise UsageError(
            f"--gpus-per-worker {gpus_per_worker}: there is no GPU here. With --device cpu, the model is divided among "
            "processes on the CPU, which is only good for trying it."
        )
    if rest := gpus % gpus_per_worker:
        whole = gpus - rest
        choose = f"Leave {rest} out with --gpus {whole}" if whole else "Use fewer per worker"
        raise UsageError(
            f"--gpus-per-worker {gpus_per_worker}: {counted(gpus, 'GPU')} cannot be dealt out in groups of {gpus_per_worker}. "
            f"{choose}, or choose another number."
        )
