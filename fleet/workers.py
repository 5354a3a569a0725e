"""What each worker is doing, as announced by the worker. For `producer status` and `demand`, and for supervisors."""

from dataclasses import dataclass
from typing import Literal

from fleet.announcements import Announcements

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


_RECORDS = Announcements("worker", WorkerState)
announce, withdraw, list_workers = _RECORDS.announce, _RECORDS.withdraw, _RECORDS.read
