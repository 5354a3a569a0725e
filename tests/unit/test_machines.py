"""Machines are counted by their names, however many `worker start` each runs."""

import pytest

from shardsift.fleet.presence.announcements import MachineState, machines_line
from shardsift.fleet.presence.demand import Wanted


def machine(name: str, *, free: int) -> MachineState:
    return MachineState(name=name, devices=("cpu",), free=free, wanted=Wanted())


@pytest.mark.parametrize(
    ("machines", "line"),
    [
        ([("a/1", 0), ("a/2", 1)], "1 machine, free: a/2"),
        ([("a/1", 0), ("a/2", 1), ("b/1", 0)], "2 machines, 1 of them free: a/2"),
        ([("a/1", 1), ("b/1", 1)], "2 machines, all free: a/1, b/1"),
    ],
)
def test_two_worker_start_of_one_machine_are_one_machine(machines: list[tuple[str, int]], line: str) -> None:
    assert machines_line([machine(name, free=free) for name, free in machines]) == line
