"""The faults of a storm: their kinds, when they happen, and the promises that they must not break.

A schedule is an endless sequence for each victim, from its name and the seed. A victim is hit a random time after it was seen
working, so faults come as fast as the fleet can still make progress. Knows no processes; `victims.py` injects the faults.
"""

import random
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    CHILD = "child"  # SIGKILL of the process that scores
    PARENT = "parent"  # SIGKILL of a worker's main process; its child ends a moment later
    GROUP = "group"  # SIGKILL of all of a worker's processes at once: the machine is gone
    FINALIZER = "finalizer"  # SIGKILL
    REDIS = "redis"  # SIGKILL, and a restart from its append-only file after a pause
    POWER = "power"  # the same, but the last writes are lost or an older copy of its data is restored
    PRODUCER = "producer"  # SIGKILL of `producer enqueue`; the same command is run again
    NOTICE_PARENT = "notice-parent"  # SIGTERM, as by `docker stop`
    NOTICE_GROUP = "notice-group"  # SIGTERM to parent and child, as by Ctrl-C or a shutdown
    FREEZE = "freeze"  # SIGSTOP of a worker for longer than a lease, then SIGCONT: a zombie
    FREEZE_REDIS = "freeze-redis"  # SIGSTOP for a while
    CUT = "cut"  # all connections of a worker to Redis are reset
    HALF_OPEN = "half-open"  # connections drop everything that is sent for a while; then they are reset
    DELAY = "delay"  # everything arrives late for a while
    SUPERVISOR = "supervisor"  # SIGKILL of a machine's `worker start`; the kernel sends its workers SIGTERM
    SUPERVISED = "supervised"  # SIGKILL of one of a machine's workers, which the supervisor starts again
    NOTICE_SUPERVISOR = "notice-supervisor"  # SIGTERM of `worker start`, which passes it on to its workers
    FREEZE_SUPERVISOR = "freeze-supervisor"  # SIGSTOP of `worker start` for a while; its workers go on
    LOCAL = "local"  # SIGKILL of any process of a `producer run`: the command, its Redis, a worker, …
    STAGED = "staged"  # a staged file is changed, truncated, emptied or deleted
    INPUT = "input"  # an input file is replaced by one with other rows, and restored after a while
    OUTPUT = "output"  # published files are damaged or deleted; then the same command is run again


KILLS_OF_WORKERS = (Kind.CHILD, Kind.PARENT, Kind.GROUP, Kind.SUPERVISED)
KILLS = (*KILLS_OF_WORKERS, Kind.SUPERVISOR, Kind.FINALIZER, Kind.REDIS, Kind.LOCAL)
NOTICES = (Kind.NOTICE_PARENT, Kind.NOTICE_GROUP, Kind.NOTICE_SUPERVISOR)
OF_MACHINES = (Kind.SUPERVISOR, Kind.SUPERVISED, Kind.NOTICE_SUPERVISOR, Kind.FREEZE_SUPERVISOR)
OF_FILES = frozenset({Kind.STAGED, Kind.INPUT, Kind.OUTPUT})

_WORKER_DECK = {
    Kind.CHILD: 5,
    Kind.PARENT: 5,
    Kind.GROUP: 5,
    Kind.NOTICE_PARENT: 1,
    Kind.NOTICE_GROUP: 1,
    Kind.FREEZE: 1,
    Kind.CUT: 1,
    Kind.HALF_OPEN: 1,
    Kind.DELAY: 1,
}
_MACHINE_DECK = {
    Kind.SUPERVISOR: 2,
    Kind.SUPERVISED: 2,
    Kind.NOTICE_SUPERVISOR: 1,
    Kind.FREEZE_SUPERVISOR: 1,
    Kind.CUT: 1,
}
_REDIS_DECK = {Kind.REDIS: 5, Kind.POWER: 2, Kind.FREEZE_REDIS: 1}
_FINALIZER_DECK = {Kind.FINALIZER: 1}
_LOCAL_DECK = {Kind.LOCAL: 1}
_FILES_DECK = {Kind.STAGED: 1, Kind.INPUT: 1}
_WORKER_PAUSE_SECONDS = 1.6  # longest time from the first claim to the fault; any part of a shard may be hit
_REDIS_PAUSE_SECONDS = (0.2, 1.5)
# Faults of Redis come in bursts, because otherwise they would disturb every recovery.
_ROUND_SECONDS, _ROUGH_SECONDS = 60.0, 32.0
_FINALIZER_PAUSE_SECONDS = 12.0
_END_OF_RUN_SECONDS = 0.4  # duration of a publication after the last shard
_PRODUCER_SECONDS = 2.0  # duration of an enqueue
_KILLED_PRODUCERS = 0.25
_LOCAL_PAUSE_SECONDS = 8.0
_FILES_SECONDS = 0.8  # longest time from one fault of a run's files to the next
_OUTPUT_FAULTS = 3  # per run, one after each of its publications
_REPLACED_SECONDS = (0.5, 3.0)  # time for which an input is replaced


@dataclass(frozen=True, kw_only=True)
class Planned:
    """A planned fault, `after_seconds` after its victim is seen working. `lasts_seconds` is 0 for a fault without duration."""

    kind: Kind
    after_seconds: float
    lasts_seconds: float = 0.0
    at_the_end_of_a_run: bool = False  # for a finalizer: wait until a run is about to be published


@dataclass(frozen=True, kw_only=True)
class Fault:
    """An injected fault. `at` is in Unix seconds; Redis uses the same clock."""

    kind: Kind
    at: float
    victim: str  # a worker's or machine's name, "finalizer-1", "redis", or the number of a run


class Promise(StrEnum):
    """A promise, named after its violation. A report counts the violations, and all counts must be 0."""

    LOST = "shards lost"  # neither done nor failed, or not in the manifest
    DOUBLED = "shards doubled"  # recorded by two attempts, or listed twice
    COMMITTED_TWICE = "runs committed twice"
    OTHER_BYTES = "runs with other bytes"  # other than those of a run without faults
    FALSELY_PUBLISHED = "runs falsely said to be published"  # although files are missing
    NOT_PUBLISHED = "runs not published"  # in time, or not as they should be
    WRONGLY_FAILED = "shards wrongly failed"  # or poison shards that did not fail after the right number of crashes
    LEFT_BEHIND = "things left behind"  # messages, leases, checkpoints, branches, processes


@dataclass(frozen=True)
class Broken:
    promise: Promise
    what: str

    def __str__(self) -> str:
        return f"{self.promise}: {self.what}"


class Schedule:
    """Plans the faults of each victim from a seed. `only` has the kinds to plan. Kinds in `enough` are no longer planned."""

    def __init__(self, seed: int, *, lease_seconds: float, only: Collection[Kind] = tuple(Kind)) -> None:
        self._seed = seed
        self._lease_seconds = lease_seconds
        self._only = only
        self.enough: set[Kind] = set()

    def is_rough(self, seconds: float) -> bool:
        """Return whether Redis has faults at this time, in seconds since the storm began."""
        return seconds % _ROUND_SECONDS < _ROUGH_SECONDS

    def of_worker(self, name: str) -> Iterator[Planned]:
        return self._of_deck(name, _WORKER_DECK)

    def of_machine(self, name: str) -> Iterator[Planned]:
        return self._of_deck(name, _MACHINE_DECK)

    def _of_deck(self, name: str, deck: dict[Kind, int]) -> Iterator[Planned]:
        rng = self.rng_of(name)
        for kind in self._kinds(deck, rng):
            yield Planned(
                kind=kind,
                after_seconds=rng.uniform(0, _WORKER_PAUSE_SECONDS),
                lasts_seconds=self._lasts(kind, rng),
            )

    def of_redis(self) -> Iterator[Planned]:
        rng = self.rng_of("redis")
        for kind in self._kinds(_REDIS_DECK, rng):
            seconds = rng.uniform(1, 3) if kind == Kind.FREEZE_REDIS else 3 * rng.random() ** 2  # mostly short
            yield Planned(kind=kind, after_seconds=rng.uniform(*_REDIS_PAUSE_SECONDS), lasts_seconds=seconds)

    def of_finalizer(self, name: str) -> Iterator[Planned]:
        """Yield the kills of a finalizer. Half of them happen while a run is being published."""
        rng = self.rng_of(name)
        for kind in self._kinds(_FINALIZER_DECK, rng):
            if rng.random() < 0.5:
                yield Planned(kind=kind, after_seconds=rng.uniform(0, _END_OF_RUN_SECONDS), at_the_end_of_a_run=True)
            else:
                yield Planned(kind=kind, after_seconds=rng.uniform(0, _FINALIZER_PAUSE_SECONDS))

    def of_producers(self) -> Iterator[Planned | None]:
        """Yield a kill or None for each call of `producer enqueue`."""
        rng = self.rng_of("producer")
        while True:
            is_killed = Kind.PRODUCER in self._only and rng.random() < _KILLED_PRODUCERS
            yield Planned(kind=Kind.PRODUCER, after_seconds=rng.uniform(0, _PRODUCER_SECONDS)) if is_killed else None

    def of_local(self) -> Iterator[Planned]:
        rng = self.rng_of("local runs")
        for kind in self._kinds(_LOCAL_DECK, rng):
            yield Planned(kind=kind, after_seconds=rng.uniform(0, _LOCAL_PAUSE_SECONDS))

    def of_files(self, run: int) -> Iterator[Planned]:
        rng = self.rng_of(f"files of {run}")
        for kind in self._kinds(_FILES_DECK, rng):
            yield Planned(
                kind=kind, after_seconds=rng.uniform(0, _FILES_SECONDS), lasts_seconds=rng.uniform(*_REPLACED_SECONDS)
            )

    @property
    def output_faults(self) -> int:
        return _OUTPUT_FAULTS if Kind.OUTPUT in self._only else 0

    def rng_of(self, victim: str) -> random.Random:
        return random.Random(f"{self._seed} {victim}")

    def _kinds(self, deck: dict[Kind, int], rng: random.Random) -> Iterator[Kind]:
        """Yield kinds from shuffled decks, one deck after another, so that every kind has its intended frequency."""
        cards = [kind for kind, times in deck.items() for _ in range(times) if kind in self._only]
        while not self.enough.issuperset(cards):
            rng.shuffle(cards)
            for kind in cards:
                if kind not in self.enough:
                    yield kind

    def _lasts(self, kind: Kind, rng: random.Random) -> float:
        if kind in (Kind.FREEZE, Kind.FREEZE_SUPERVISOR):
            return self._lease_seconds * rng.uniform(1.3, 2.5)
        if kind in (Kind.HALF_OPEN, Kind.DELAY):
            return self._lease_seconds * rng.uniform(0.3, 2.0)
        return 0.0
