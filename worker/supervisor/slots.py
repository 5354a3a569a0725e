"""Divide this machine into slots, one per worker. A slot is one or more GPUs, or the CPU, and a share of the cores."""

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from shardsift.fleet.errors import UsageError
from shardsift.fleet.process.cores import cpu_count
from shardsift.fleet.process.wording import counted
from shardsift.worker.scoring.gpus import VISIBLE, visible_gpus

_NAME = re.compile(r"[\w-][\w.-]{0,63}")  # used in file names, and before the @ in the worker's name


@dataclass(frozen=True, kw_only=True)
class Slot:
    """A part of this machine for one worker.

    The variables in `environment` bind the worker to its devices and its share of the cores.
    """

    name: str
    environment: dict[str, str] = field(default_factory=dict)

    @property
    def devices(self) -> tuple[str, ...]:
        """The numbers or UUIDs of the GPUs, or `cpu`."""
        return tuple(self.environment.get(VISIBLE, "cpu").split(","))


def find_slots(
    *,
    workers: int | None = None,
    gpus_per_worker: int = 1,
    device: str = "auto",
    name: str | None = None,
) -> list[Slot]:
    """Make a slot for each worker: a group of `gpus_per_worker` GPUs, or the CPU if there is no GPU.

    `workers` defaults to one per group, or one on the CPU. If there are more workers than groups, several share a
    group. Workers on the CPU share its cores. Slots are called `gpu0`, `gpu1`, … (`gpus0-1` for two GPUs) or `worker`.
    With `name`, a single slot has that name, and the names of several slots begin with it.

    Raises UsageError for options that contradict each other, and for GPUs that cannot be divided evenly. Does not
    check that torch finds `device`: each worker does.
    """
    if name is not None and not _NAME.fullmatch(name):
        raise UsageError(f"--name {name}: a name has letters, digits, and any of . _ - between them, 64 at most.")
    devices = visible_gpus() if device in ("auto", "cuda") else []
    if gpus_per_worker > 1 and any(gpu.startswith("MIG-") for gpu in devices):
        raise UsageError(f"--gpus-per-worker {gpus_per_worker}: a process sees only one slice of a GPU. Leave it out.")
    _check_groups(devices, gpus_per_worker, device=device)
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


def _names(name: str | None, groups: Sequence[Sequence[str]], count: int) -> list[str]:
    if groups:
        # A UUID is too long for a name, so use its place in the list.
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
    """Return the environment variables that limit each worker's threads, without those that the user has set.

    On a CPU, torch is fastest with one thread per physical core.
    """
    share = max(1, cpu_count() // workers)
    model = share if on_gpu else max(1, cpu_count(only_physical_cores=True) // workers)
    threads = {"SHARDSIFT_THREADS": model, "OMP_NUM_THREADS": model, "RAYON_NUM_THREADS": share}
    threads["TORCHINDUCTOR_COMPILE_THREADS"] = min(share, 32)
    return {name: str(count) for name, count in threads.items() if not os.environ.get(name)}


def _check_groups(gpus: Sequence[str], gpus_per_worker: int, *, device: str) -> None:
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
    if rest := len(gpus) % gpus_per_worker:
        whole = ",".join(gpus[:-rest])
        choose = f"Leave {rest} out with {VISIBLE}={whole}" if whole else "Use fewer per worker"
        raise UsageError(
            f"--gpus-per-worker {gpus_per_worker}: {counted(len(gpus), 'GPU')} cannot be dealt out in groups of "
            f"{gpus_per_worker}. {choose}, or choose another number."
        )
