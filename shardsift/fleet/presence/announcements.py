"""Records in which the processes of a fleet announce every few seconds what they are doing.

Redis deletes the record of a process that is silent for ALIVE_SECONDS, so no clocks are compared.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, Literal, TypeVar

import redis
from pydantic import TypeAdapter, ValidationError

from shardsift.fleet.ledger.base import PREFIX
from shardsift.fleet.presence.demand import Load, Wanted
from shardsift.fleet.process.wording import counted, first_of

ANNOUNCE_SECONDS = 5.0
ALIVE_SECONDS = 3 * ANNOUNCE_SECONDS


@dataclass(frozen=True, kw_only=True)
class _State:
    """The record that a process announces. `producer run` sets `only_run`, and the process then serves no other run."""

    name: str
    only_run: str | None = None

    def serves(self, run_id: str) -> bool:
        return self.only_run in (None, run_id)


State = TypeVar("State", bound=_State)


class Announcements(Generic[State]):
    """The records of one kind of process, such as `worker`. `state` is the dataclass of its records."""

    def __init__(self, kind: str, state: type[State]) -> None:
        self._names = f"{PREFIX}{kind}s"
        self._record = f"{PREFIX}{kind}:"
        self._state = TypeAdapter(state)

    def announce(self, client: redis.Redis, state: State) -> None:
        """Store a process's record. Repeat it within ALIVE_SECONDS, otherwise Redis deletes the record."""
        with client.pipeline() as pipeline:
            pipeline.sadd(self._names, state.name)
            pipeline.set(self._record + state.name, self._state.dump_json(state), px=round(ALIVE_SECONDS * 1000))
            pipeline.execute()

    def withdraw(self, client: redis.Redis, name: str) -> None:
        with client.pipeline() as pipeline:
            pipeline.srem(self._names, name)
            pipeline.delete(self._record + name)
            pipeline.execute()

    def read(self, client: redis.Redis) -> list[State]:
        """Return the records of processes that announced within ALIVE_SECONDS, sorted by name.

        Deletes the names of silent processes, and skips unreadable records.
        """
        names = sorted(map(str, client.smembers(self._names)))
        if not names:
            return []
        records = client.mget([self._record + name for name in names])
        if silent := [name for name, record in zip(names, records, strict=True) if record is None]:
            client.srem(self._names, *silent)
        return [state for record in records if record is not None and (state := self._parsed(record))]

    def _parsed(self, record: str | bytes) -> State | None:
        try:
            return self._state.validate_json(record)
        except ValidationError:  # not one of ours
            return None


# What each worker announces about itself, for `producer status` and for supervisors.

Activity = Literal["loading", "ready", "busy", "stopping"]


@dataclass(frozen=True, kw_only=True)
class WorkerState(_State):
    """The record of a worker. `name` is the `owner` in its claims. `activity` began `activity_seconds` ago.

    A `loading` worker takes no shard yet: it is starting, or its process was replaced. A `stopping` worker takes no
    more shards: it has received a signal, or its spot machine is being reclaimed.
    """

    queue: str
    model: str
    revision: str
    dtype: str
    activity: Activity
    activity_seconds: float
    device: str | None = None  # once the model is loaded
    run_id: str | None = None  # of the shard in progress
    shard: str | None = None

    @property
    def pid(self) -> int:
        return int(self.name.rpartition("/")[2])


_WORKERS = Announcements("worker", WorkerState)
announce, withdraw, list_workers = _WORKERS.announce, _WORKERS.withdraw, _WORKERS.read


# What each machine (each `worker start`) announces that it can serve, for `producer status` and `doctor`.

_NAMED = 5


@dataclass(frozen=True, kw_only=True)
class MachineState(_State):
    """The record of a `worker start`. `name` is its host and process id; `devices` has one element per worker.

    `free` counts the workers without a shard, including those not started because no run needs them. `avoids` has the
    queues that this machine's workers recently failed to serve, each with the reason.
    """

    devices: tuple[str, ...]
    free: int
    wanted: Wanted
    avoids: Mapping[str, str] = field(default_factory=dict)

    @property
    def host(self) -> str:
        return self.name.rpartition("/")[0]

    def may_serve(self, load: Load) -> bool:
        """Return whether this machine's workers take shards of this load when they are free."""
        return self.wanted.admits(load) and load.queue not in self.avoids

    def failed_to_serve(self, load: Load) -> bool:
        """Return whether this machine is set up for this load, but its workers failed to serve it recently.

        The machine tries again after a while.
        """
        return self.wanted.admits(load) and load.queue in self.avoids


_MACHINES = Announcements("machine", MachineState)
announce_machine, withdraw_machine, list_machines = _MACHINES.announce, _MACHINES.withdraw, _MACHINES.read


def machines_line(machines: Sequence[MachineState]) -> str:
    """Count the machines, and name the free ones: `3 machines, 1 of them free: gpu-box/4711`.

    A free machine has a worker without a shard. Several `worker start` on one host count as one machine.
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
    return first_of([machine.name for machine in machines], _NAMED)


# What each finalizer announces, for `producer status`.


@dataclass(frozen=True, kw_only=True)
class FinalizerState(_State):
    """The record of a finalizer. `name` is its host and process id."""


_FINALIZERS = Announcements("finalizer", FinalizerState)
announce_finalizer, withdraw_finalizer, list_finalizers = _FINALIZERS.announce, _FINALIZERS.withdraw, _FINALIZERS.read
