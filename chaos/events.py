"""Read the events that the processes of the fleet recorded. `tests/inject/noted.py` writes them."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_CHUNK_BYTES = 1 << 20


@dataclass(frozen=True, kw_only=True)
class Event:
    """`what` is claim, complete, release, retry_later, crashed, fail, due, publish or loaded."""

    at: float  # Unix seconds
    what: str
    pid: int
    parent: int  # its parent process
    run: str = ""
    shard: str = ""
    token: str = ""
    owner: str = ""  # of a claim: <worker>@<host>/<pid of the parent>
    shards: tuple[str, ...] = ()  # that became due again
    seconds: float = 0.0  # that a load took

    @property
    def ends_claim(self) -> bool:
        return self.what in ("complete", "release", "retry_later", "record_crash", "fail")


class EventLog:
    """All events so far. `news` reads the new ones."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        self._file = path.open("rb")
        self._rest = b""
        self.events: list[Event] = []

    def news(self) -> list[Event]:
        fresh = [_event(json.loads(line)) for line in self._lines()]
        self.events += fresh
        return fresh

    def close(self) -> None:
        self._file.close()

    def _lines(self) -> Iterator[bytes]:
        while content := self._file.read(_CHUNK_BYTES):
            *lines, self._rest = (self._rest + content).split(b"\n")
            yield from lines


def _event(fields: dict[str, Any]) -> Event:
    return Event(**{**fields, "shards": tuple(fields.get("shards", ()))})
