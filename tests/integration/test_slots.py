"""The slots of a machine: its GPUs as nvidia-smi or CUDA_VISIBLE_DEVICES name them, and a share of the cores for each."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from shardsift.fleet.errors import UsageError
from shardsift.worker.supervisor.slots import Slot, find_slots
from support.nvidia_smi import install_nvidia_smi

USABLE, PHYSICAL = 8, 4  # cores
THREADS = ("SHARDSIFT_THREADS", "OMP_NUM_THREADS", "RAYON_NUM_THREADS", "TORCHINDUCTOR_COMPILE_THREADS")


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., None]:
    """Make this a machine with so many GPUs."""

    def cores(only_physical_cores: bool = False) -> int:
        return PHYSICAL if only_physical_cores else USABLE

    def is_made(*, gpus: int = 0, slices: int = 0, visible: str | None = None) -> None:
        monkeypatch.setattr("shardsift.worker.supervisor.slots.cpu_count", cores)
        install_nvidia_smi(tmp_path, gpus=gpus, slices=slices)
        monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
        for name in THREADS:
            monkeypatch.delenv(name, raising=False)
        if visible is None:
            monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        else:
            monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)

    return is_made


def devices(slots: list[Slot]) -> list[tuple[str, str]]:
    return [(slot.name, slot.environment["CUDA_VISIBLE_DEVICES"]) for slot in slots]


def test_each_gpu_is_a_place_with_its_share_of_the_cores(machine: Callable[..., None]) -> None:
    machine(gpus=2)

    slots = find_slots()

    assert devices(slots) == [("gpu0", "0"), ("gpu1", "1")]
    for threads in THREADS:
        assert {slot.environment[threads] for slot in slots} == {"4"}


PAIRS = {"gpus_per_worker": 2}


@pytest.mark.parametrize(
    ("visible", "options", "expected"),
    [
        ("0,2", {}, [("gpu0", "0"), ("gpu2", "2")]),
        ("3,GPU-7f2a", {}, [("gpu3", "3"), ("gpu1", "GPU-7f2a")]),
        ("0", {"workers": 2}, [("gpu0", "0"), ("gpu0-1", "0")]),
        ("0", {"name": "mine"}, [("mine", "0")]),
        ("0,1", {"name": "a100"}, [("a100-gpu0", "0"), ("a100-gpu1", "1")]),
        (None, PAIRS, [("gpus0-1", "0,1"), ("gpus2-3", "2,3")]),
        ("0,1", PAIRS | {"workers": 2}, [("gpus0-1", "0,1"), ("gpus0-1-1", "0,1")]),
        (None, PAIRS | {"name": "a100"}, [("a100-gpus0-1", "0,1"), ("a100-gpus2-3", "2,3")]),
    ],
)
def test_the_user_chooses_gpus_workers_and_names(
    visible: str | None, options: dict[str, Any], expected: list[tuple[str, str]], machine: Callable[..., None]
) -> None:
    machine(gpus=4, visible=visible)

    slots = find_slots(**options)

    assert devices(slots) == expected
    assert slots[0].devices == tuple(expected[0][1].split(","))
    assert slots[0].environment["SHARDSIFT_THREADS"] == str(USABLE // len(slots))


def test_each_slice_of_a_divided_gpu_is_a_place_beside_the_undivided_gpus(
    machine: Callable[..., None],
) -> None:
    machine(gpus=2, slices=3)

    assert devices(find_slots()) == [
        ("gpu0", "MIG-0abc"),
        ("gpu1", "MIG-1abc"),
        ("gpu2", "MIG-2abc"),
        ("gpu3", "GPU-1abc"),
    ]
    with pytest.raises(UsageError, match="--gpus-per-worker 2: a process sees only one slice"):
        find_slots(**PAIRS)


@pytest.mark.parametrize("visible", ["", "-1"])
def test_a_machine_whose_gpus_are_hidden_scores_on_the_cpu(visible: str, machine: Callable[..., None]) -> None:
    machine(gpus=2, visible=visible)

    (slot,) = find_slots()

    assert slot.name == "worker"
    assert "CUDA_VISIBLE_DEVICES" not in slot.environment


def test_a_cpu_is_one_place_with_a_thread_per_physical_core(machine: Callable[..., None]) -> None:
    machine()

    (slot,) = find_slots()

    assert slot.name == "worker"
    assert slot.environment == dict(zip(THREADS, ("4", "4", "8", "8"), strict=True))


def test_threads_that_the_user_has_set_stay(machine: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    machine(gpus=1)
    monkeypatch.setenv("TORCHINDUCTOR_COMPILE_THREADS", "1")

    (slot,) = find_slots()

    assert "TORCHINDUCTOR_COMPILE_THREADS" not in slot.environment
    assert slot.environment["SHARDSIFT_THREADS"] == "8"


@pytest.mark.parametrize(
    ("gpus", "options", "reason"),
    [
        (3, PAIRS, "3 GPUs cannot be dealt out in groups of 2. Leave 1 out with CUDA_VISIBLE_DEVICES=0,1"),
        (1, PAIRS, "1 GPU cannot be dealt out in groups of 2. Use fewer per worker"),
        (0, PAIRS, "there is no GPU here. With --device cpu"),
        (2, PAIRS | {"device": "cuda:1"}, "--gpus-per-worker 2 and --device cuda:1 contradict each other"),
    ],
)
def test_gpus_that_cannot_be_dealt_out_are_refused(
    machine: Callable[..., None], gpus: int, options: dict[str, Any], reason: str
) -> None:
    machine(gpus=gpus)

    with pytest.raises(UsageError) as refused:
        find_slots(**options)

    assert reason in str(refused.value)


@pytest.mark.parametrize("name", ["a@b", "team/a", "../a", "", "two words", "x" * 65])
def test_a_name_that_cannot_be_part_of_a_workers_or_a_files_is_refused(name: str, machine: Callable[..., None]) -> None:
    machine(gpus=1)

    with pytest.raises(UsageError, match="a name has letters, digits, and any of"):
        find_slots(name=name)
