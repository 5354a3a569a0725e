"""What each worker is doing, as announced by the worker every few seconds.

For `producer status` and `producer demand`, and for the supervisors of `worker start`. Redis expires the record of a
worker that is silent for ALIVE_SECONDS, so no clocks are compared.
"""

from dataclasses import dataclass
from typing import Literal

import redis
from pydantic import TypeAdapter, ValidationError

from fleet.ledger.keys import PREFIX

ANNOUNCE_SECONDS = 5.0
ALIVE_SECONDS = 3 * ANNOUNCE_SECONDS
_NAMES = PREFIX + "workers"
_RECORD = PREFIX + "worker:"

Activity = Literal["loading", "ready", "busy", "stopping"]


@dataclass(frozen=True, kw_only=True)
class WorkerState:
    """`name` is the owner of the worker's claims. `activity_seconds` is the age of the activity when it was announced.

    A `loading` worker takes no shard, neither at its start nor after its process was replaced. A `stopping` worker takes
    no more shards: it has received a signal, or its spot machine is being reclaimed.
    """

    name: str
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
        """The process id on the worker's machine."""
        return int(self.name.rpartition("/")[2])


def announce(client: redis.Redis, state: WorkerState) -> None:
    """Announce what a worker is doing. Repeat within ALIVE_SECONDS."""
    with client.pipeline() as pipeline:
        pipeline.sadd(_NAMES, state.name)
        pipeline.set(_RECORD + state.name, _STATE.dump_json(state), px=round(ALIVE_SECONDS * 1000))
        pipeline.execute()


def withdraw(client: redis.Redis, name: str) -> None:
    """Remove the record of a worker that ends."""
    with client.pipeline() as pipeline:
        pipeline.srem(_NAMES, name)
        pipeline.delete(_RECORD + name)
        pipeline.execute()


def list_workers(client: redis.Redis) -> list[WorkerState]:
    """The workers seen within ALIVE_SECONDS, by name. Removes the others, and skips records that it cannot read."""
    names = sorted(_text(name) for name in client.smembers(_NAMES))
    if not names:
        return []
    records = client.mget([_RECORD + name for name in names])
    if silent := [name for name, record in zip(names, records, strict=True) if record is None]:
        client.srem(_NAMES, *silent)
    return [state for record in records if record is not None and (state := _parsed(record))]


_STATE = TypeAdapter(WorkerState)


def _parsed(record: str | bytes) -> WorkerState | None:
    try:
        return _STATE.validate_json(record)
    except ValidationError:  # from a newer worker
        return None


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value
