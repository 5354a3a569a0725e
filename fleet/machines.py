"""What each machine can serve, as announced by its `worker start`. For `producer status` and `doctor`."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from fleet.announcements import Announcements
from fleet.counted import counted, first_of
from fleet.demand import Load, Wanted

_NAMED = 5


@dataclass(frozen=True, kw_only=True)
class MachineState:
    """`name` is the host and the process id of `worker start`. `devices` has an element for each worker: a GPU, or `cpu`.

    `free` is the number of workers without a shard, or not started because nothing is needed. `avoids` are the queues that no
    worker here could serve lately, each with the reason.
    """

    name: str
    devices: tuple[str, ...]
    free: int
    wanted: Wanted
    avoids: Mapping[str, str] = field(default_factory=dict)

    @property
    def host(self) -> str:
        return self.name.rpartition("/")[0]

    @property
    def pid(self) -> int:
        return int(self.name.rpartition("/")[2])

    def may_serve(self, load: Load) -> bool:
        """Whether a worker here takes these shards, as soon as one is free."""
        return self.wanted.admits(load) and load.queue not in self.avoids

    def failed_to_serve(self, load: Load) -> bool:
        """Whether no worker here could serve these shards lately. It is tried again after a while."""
        return self.wanted.admits(load) and load.queue in self.avoids


_RECORDS = Announcements("machine", MachineState)
announce_machine, withdraw_machine, list_machines = _RECORDS.announce, _RECORDS.withdraw, _RECORDS.read


def machines_line(machines: Sequence[MachineState]) -> str:
    """For example `3 machines, 1 of them free: gpu-box/4711`, or `1 machine, free: gpu-box/4711`.

    A free machine has a worker without a shard. One that runs several `worker start` is one machine.
    """
    free = [machine for machine in machines if machine.free]
    here, with_free = hosts(machines), hosts(free)
    if with_free == here:
        how_many = "free" if len(here) == 1 else "all free"
    else:
        how_many = f"{len(with_free):,} of them free" if free else "none free"
    return f"{counted(len(here), 'machine')}, {how_many}{f': {machine_names(free)}' if free else ''}"


def hosts(machines: Iterable[MachineState]) -> set[str]:
    return {machine.host for machine in machines}


def machine_names(machines: Sequence[MachineState]) -> str:
    """The first names, and how many more there are."""
    return first_of([machine.name for machine in machines], _NAMED)
