"""How long the fleet took to recover from each fault. Pure functions of the injected faults and the recorded events."""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from chaos.events import Event
from chaos.kinds import KILLS_OF_WORKERS, NOTICES, Fault, Kind

_HOLDERS = (*KILLS_OF_WORKERS, Kind.SUPERVISOR, *NOTICES, Kind.FREEZE)
_OUTAGES = (Kind.REDIS, Kind.POWER, Kind.FREEZE_REDIS)
_AFTER_OUTAGE_SECONDS = 3.0  # clients may wait this long before they connect again
_REWOUND_SECONDS = 90.0  # claims in this time before a power loss may be forgotten and made again


@dataclass(frozen=True, kw_only=True)
class Recovery:
    """The time from a fault until the fleet had recovered from it.

    For a worker that held a shard: until that shard is claimed again. A fault of a machine has one for each of its workers
    that held a shard. For Redis: from its first answer until any shard is claimed. For a finalizer: until a finalizer next
    looks at the ledger.

    `due_seconds` is the time until a sweep or the parent sent the shard again; the rest is the wait for a free worker.
    `ended_seconds` is the time until the last process of the victim was gone. `is_calm` says that no fault of Redis or of
    the finalizers interfered. Bounds apply only then.
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
    """The recorded events, indexed by shard, worker and time."""

    def __init__(self, events: Sequence[Event], finalizer_pids: set[int]) -> None:
        self.claims: dict[tuple[str, str], list[Event]] = defaultdict(list)  # by run and shard
        self.by_owner: dict[str, list[Event]] = defaultdict(list)
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
            self.by_owner[event.owner].append(event)
        elif event.ends_claim:
            self.ends.setdefault(event.token, event)
        elif event.what == "due":
            for shard in event.shards:
                self.dues[event.run, shard].append(event.at)
            if event.pid in finalizer_pids:
                self.looks.append(event.at)

    def held(self, owner: str, at: float) -> Event | None:
        """The claim that this worker held at that time."""
        claims = self.by_owner[owner]
        before = claims[: bisect_right([claim.at for claim in claims], at)]
        if not before or (before[-1].token in self.ends and self.ends[before[-1].token].at <= at):
            return None
        return before[-1]


def recoveries(
    faults: Sequence[Fault], history: History, *, sweep_seconds: float, damaged: Collection[tuple[str, str]] = ()
) -> list[Recovery]:
    """The recoveries from all faults that had an effect. A worker that is hit between two shards loses none.

    `damaged` has the run and name of shards whose files met a fault. They are scored again for that reason, so their
    recoveries are never calm.
    """
    unrest = tuple(
        (
            fault.at - (_REWOUND_SECONDS if fault.kind == Kind.POWER else 0.0),
            (fault.over_at or fault.at) + _AFTER_OUTAGE_SECONDS,
        )
        for fault in faults
        if fault.kind in _OUTAGES
    )
    calm = _Calm(unrest=unrest, damaged=damaged, looks=history.looks, sweep_seconds=sweep_seconds)
    return [recovery for fault in faults for recovery in _recoveries(fault, history, calm)]


@dataclass(frozen=True, kw_only=True)
class _Calm:
    """Tells whether a recovery was disturbed by anything but its own fault. If it was, no bound on its time holds."""

    unrest: Sequence[tuple[float, float]]  # from and until when faults of Redis had an effect
    damaged: Collection[tuple[str, str]]
    looks: Sequence[float]  # of finalizers at the ledger
    sweep_seconds: float

    def holds(self, held: Event, *, fault_at: float, until: float) -> bool:
        """Whether nothing disturbed the shard of this claim until it was claimed again."""
        is_damaged = (held.run, held.shard) in self.damaged
        in_unrest = any(begin <= until and end >= held.at for begin, end in self.unrest)
        return not is_damaged and not in_unrest and self._is_swept(fault_at, until)

    def _is_swept(self, since: float, until: float) -> bool:
        """Whether finalizers looked as often as they should in that time."""
        within = [since, *(look for look in self.looks if since < look < until), until]
        return all(after - before <= 2 * self.sweep_seconds for before, after in pairwise(within))


def _recoveries(fault: Fault, history: History, calm: _Calm) -> Iterator[Recovery]:
    if fault.kind in _HOLDERS:
        found = [_of_holder(fault, owner, history, calm) for owner in fault.owners]
    elif fault.kind in _OUTAGES and fault.over_at:
        found = [_simple(fault, fault.over_at, history.claimed_at)]
    elif fault.kind == Kind.FINALIZER:
        found = [_simple(fault, fault.at, history.looks)]
    else:
        found = []
    yield from filter(None, found)


def _of_holder(fault: Fault, owner: str, history: History, calm: _Calm) -> Recovery | None:
    held = history.held(owner, fault.at)
    if held is None:
        return None
    again = _first_after(fault.at, [claim.at for claim in history.claims[held.run, held.shard]])
    if again is None:  # the shard was done before the kill, or the worker continued after a freeze
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
        is_calm=calm.holds(held, fault_at=fault.at, until=again),
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
