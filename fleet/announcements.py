"""Records in which the processes of a fleet announce what they are doing, every few seconds.

Redis expires the record of a process that is silent for ALIVE_SECONDS, so no clocks are compared.
"""

from typing import Generic, Protocol, TypeVar

import redis
from pydantic import TypeAdapter, ValidationError

from fleet.ledger.keys import PREFIX

ANNOUNCE_SECONDS = 5.0
ALIVE_SECONDS = 3 * ANNOUNCE_SECONDS


class _Named(Protocol):
    @property
    def name(self) -> str: ...


State = TypeVar("State", bound=_Named)


class Announcements(Generic[State]):
    """The records of one kind of process, such as `worker`. `state` is the dataclass of a record."""

    def __init__(self, kind: str, state: type[State]) -> None:
        self._names = f"{PREFIX}{kind}s"
        self._record = f"{PREFIX}{kind}:"
        self._state = TypeAdapter(state)

    def announce(self, client: redis.Redis, state: State) -> None:
        """Announce what a process is doing. Repeat within ALIVE_SECONDS."""
        with client.pipeline() as pipeline:
            pipeline.sadd(self._names, state.name)
            pipeline.set(self._record + state.name, self._state.dump_json(state), px=round(ALIVE_SECONDS * 1000))
            pipeline.execute()

    def withdraw(self, client: redis.Redis, name: str) -> None:
        """Remove the record of a process that ends."""
        with client.pipeline() as pipeline:
            pipeline.srem(self._names, name)
            pipeline.delete(self._record + name)
            pipeline.execute()

    def read(self, client: redis.Redis) -> list[State]:
        """The processes seen within ALIVE_SECONDS, by name. Removes the others, and skips records that it cannot read."""
        names = sorted(_text(name) for name in client.smembers(self._names))
        if not names:
            return []
        records = client.mget([self._record + name for name in names])
        if silent := [name for name, record in zip(names, records, strict=True) if record is None]:
            client.srem(self._names, *silent)
        return [state for record in records if record is not None and (state := self._parsed(record))]

    def _parsed(self, record: str | bytes) -> State | None:
        try:
            return self._state.validate_json(record)
        except ValidationError:  # from a newer version
            return None


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value
