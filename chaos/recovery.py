"""How long the fleet took to recover from each fault. Pure functions of the injected faults and the recorded events."""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from chaos.events import Event
from chaos.kinds import Fault, Kind

_HOLDERS = (Kind.CHILD, Kind.PARENT, Kind.GROUP, Kind.NOTICE_PARENT, Kind.NOTICE_GROUP, Kind.FREEZE)
_OUTAGES = (Kind.REDIS, Kind.POWER, Kind.FREEZE_REDIS)
_AFTER_OUTAGE_SECONDS = 3.0  # in which clients may still wait for their next try to connect
_REWOUND_SECONDS = 90.0  # before a power loss: what was claimed then may be claimed and scored again


@dataclass(frozen=True, kw_only=True)
class Recovery:
    """After a fault that hit a worker which held a shard, until that shard was claimed anew; after one of Redis, from its
    first answer until any shard was claimed; after one of a finalizer, until the next look of one at the ledger.

    `due_seconds` is when a sweep or the parent had the shard sent anew; the rest is the wait for a worker that is free.
    `ended_seconds` is when the last process of the victim was gone. `is_calm` where no fault of Redis or of the finalizers
    was in between: only then bounds can hold.
    """

    kind: Kind
    at: float
    victim: str
    shard: str
    token: str
    seconds: float
    due_seconds: float | None
    ended_seconds: float
    is_calm: bool


class History:
    """What was noted, arranged so that what was at a moment is found."""

    def __init__(self, events: Sequence[Event], finalizer_pids: set[int]) -> None:
        self.claims: dict[tuple[str, str], list[Event]] = defaultdict(list)  # of a shard of a run
        self.by_owner: dict[tuple[str, int], list[Event]] = defaultdict(list)  # worker and pid of its parent → claims
        self.ends: dict[str, Event] = {}  # token → the end of that claim
        self.dues: dict[tuple[str, str], list[float]] = defaultdict(list)
        self.looks: list[float] = []  # of finalizers
        for event in sorted(events, key=lambda event: event.at):
            self._add(event, finalizer_pids)
        self.claimed_at = [claim.at for claims in self.claims.values() for claim in claims]
        self.claimed_at.sort()

    def _add(self, event: Event, finalizer_pids: set[int]) -> None:
        if event.what == "claim":
            self.claims[event.run, event.shard].append(event)
            worker, _, rest = event.owner.partition("@")
            self.by_owner[worker, int(rest.rpartition("/")[2])].append(event)
        elif event.ends_claim:
            self.ends.setdefault(event.token, event)
        elif event.what == "due":
            for shard in event.shards:
                self.dues[event.run, shard].append(event.at)
            if event.pid in finalizer_pids:
                self.looks.append(event.at)

    def held(self, worker: str, parent_pid: int, at: float) -> Event | None:
        """The claim that this worker held then."""
        claims = self.by_owner[worker, parent_pid]
        before = claims[: bisect_right([claim.at for claim in claims], at)]
        if not before or (before[-1].token in self.ends and self.ends[before[-1].token].at <= at):
            return None
        return before[-1]


def recoveries(
    faults: Sequence[Fault], history: History, *, sweep_seconds: float, damaged: Collection[tuple[str, str]] = ()
) -> list[Recovery]:
    """Of the faults that had something to recover from: a worker between two shards loses none.

    `damaged` are shards by their runs whose files met a fault, so that what was scored is scored again: none is calm.
    """
    unrest = [
        (
            fault.at - (_REWOUND_SECONDS if fault.kind == Kind.POWER else 0.0),
            (fault.over_at or fault.at) + _AFTER_OUTAGE_SECONDS,
        )
        for fault in faults
        if fault.kind in _OUTAGES
    ]
    found = (_recovery(fault, history, unrest, sweep_seconds, damaged) for fault in faults)
    return [recovery for recovery in found if recovery]


def _recovery(
    fault: Fault,
    history: History,
    unrest: Sequence[tuple[float, float]],
    sweep_seconds: float,
    damaged: Collection[tuple[str, str]],
) -> Recovery | None:
    if fault.kind in _HOLDERS:
        return _of_holder(fault, history, unrest, sweep_seconds, damaged)
    if fault.kind in _OUTAGES and fault.over_at:
        return _simple(fault, fault.over_at, history.claimed_at)
    if fault.kind == Kind.FINALIZER:
        return _simple(fault, fault.at, history.looks)
    return None


def _of_holder(
    fault: Fault,
    history: History,
    unrest: Sequence[tuple[float, float]],
    sweep_seconds: float,
    damaged: Collection[tuple[str, str]],
) -> Recovery | None:
    held = history.held(fault.victim, fault.pid, fault.at)
    if held is None:
        return None
    again = _first_after(fault.at, [claim.at for claim in history.claims[held.run, held.shard]])
    if again is None:  # it was done before it died, or goes on after a freeze
        return None
    due = _first_after(fault.at, history.dues[held.run, held.shard])
    return Recovery(
        kind=fault.kind,
        at=fault.at,
        victim=fault.victim,
        shard=held.shard,
        token=held.token,
        seconds=again - fault.at,
        due_seconds=due - fault.at if due is not None and due <= again else None,
        ended_seconds=max(0.0, (fault.over_at or fault.at) - fault.at),
        is_calm=(held.run, held.shard) not in damaged
        and _is_calm(held.at, again, unrest)
        and _is_swept(fault.at, again, history.looks, sweep_seconds),
    )


def _simple(fault: Fault, since: float, moments: Sequence[float]) -> Recovery | None:
    at = _first_after(since, moments)
    if at is None:
        return None
    return Recovery(
        kind=fault.kind,
        at=fault.at,
        victim=fault.victim,
        shard="",
        token="",
        seconds=at - since,
        due_seconds=None,
        ended_seconds=0.0,
        is_calm=True,
    )


def _first_after(at: float, moments: Iterable[float]) -> float | None:
    return next((moment for moment in moments if moment > at), None)


def _is_calm(since: float, until: float, unrest: Sequence[tuple[float, float]]) -> bool:
    return not any(begin <= until and end >= since for begin, end in unrest)


def _is_swept(since: float, until: float, looks: Sequence[float], sweep_seconds: float) -> bool:
    """Whether some finalizer looked as often as it should all the while."""
    within = [since, *(look for look in looks if since < look < until), until]
    return all(after - before <= 2 * sweep_seconds for before, after in _pairs(within))


def _pairs(moments: Sequence[float]) -> Iterator[tuple[float, float]]:
    return zip(moments, moments[1:], strict=False)
