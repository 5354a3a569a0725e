"""Decide which faults happen, and when: an endless sequence for each victim, from its name and the seed.

A victim is hit a random time after it was seen working, so faults come as fast as the fleet can still make progress. Knows
no processes.
"""

import random
from collections.abc import Collection, Iterator

from chaos.kinds import Kind, Planned

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
_PRODUCER_DECK = {Kind.PRODUCER: 1}
_FILES_DECK = {Kind.STAGED: 1, Kind.INPUT: 1}
WORKER_PAUSE_SECONDS = 1.6  # at most, from the first claim to the fault, so that any part of a shard may be hit
_REDIS_PAUSE_SECONDS = (0.2, 1.5)
_ROUND_SECONDS, _ROUGH_SECONDS = (
    60.0,
    32.0,
)  # faults of Redis come in bursts, because otherwise they would disturb every recovery
_FINALIZER_PAUSE_SECONDS = 12.0
_END_OF_RUN_SECONDS = 0.4  # duration of a publication after the last shard
_PRODUCER_SECONDS = 2.0  # duration of an enqueue
_KILLED_PRODUCERS = 0.25
_FILES_SECONDS = 0.8  # at most, from one fault of a run's files to the next
_OUTPUT_FAULTS = 3  # per run, one after each of its publications
_REPLACED_SECONDS = (0.5, 3.0)  # time for which an input is replaced
_PAUSES = (0, 0, 1, 2)
_UNTIL_PAUSE_SECONDS = (0.0, 3.0)
_PAUSED_SECONDS = (0.5, 4.0)
_LIMITS = (None, None, None, None, 2, 3)


class Schedule:
    """`only` has the kinds to inject. Kinds in `enough`, of which there were enough, are left out from then on."""

    def __init__(
        self,
        seed: int,
        *,
        lease_seconds: float,
        only: Collection[Kind] = tuple(Kind),
        worker_pause_seconds: float = WORKER_PAUSE_SECONDS,
    ) -> None:
        self._seed = seed
        self._worker_pause_seconds = worker_pause_seconds
        self._lease_seconds = lease_seconds
        self._only = only
        self.enough: set[Kind] = set()

    def is_rough(self, seconds: float) -> bool:
        """Whether Redis has faults at this time after the beginning of the storm."""
        return seconds % _ROUND_SECONDS < _ROUGH_SECONDS

    def of_worker(self, name: str) -> Iterator[Planned]:
        return self._of_deck(name, _WORKER_DECK)

    def of_machine(self, name: str) -> Iterator[Planned]:
        return self._of_deck(name, _MACHINE_DECK)

    def _of_deck(self, name: str, deck: dict[Kind, int]) -> Iterator[Planned]:
        rng = self._rng(name)
        for kind in self._kinds(deck, rng):
            yield Planned(
                kind=kind,
                after_seconds=rng.uniform(0, self._worker_pause_seconds),
                lasts_seconds=self._lasts(kind, rng),
            )

    def of_redis(self) -> Iterator[Planned]:
        rng = self._rng("redis")
        for kind in self._kinds(_REDIS_DECK, rng):
            seconds = rng.uniform(1, 3) if kind == Kind.FREEZE_REDIS else 3 * rng.random() ** 2  # mostly short
            yield Planned(kind=kind, after_seconds=rng.uniform(*_REDIS_PAUSE_SECONDS), lasts_seconds=seconds)

    def of_finalizer(self, name: str) -> Iterator[Planned]:
        """The kills of a finalizer, half of them while a run is being published."""
        rng = self._rng(name)
        for kind in self._kinds(_FINALIZER_DECK, rng):
            if rng.random() < 0.5:
                yield Planned(kind=kind, after_seconds=rng.uniform(0, _END_OF_RUN_SECONDS), at_the_end_of_a_run=True)
            else:
                yield Planned(kind=kind, after_seconds=rng.uniform(0, _FINALIZER_PAUSE_SECONDS))

    def of_producers(self) -> Iterator[Planned | None]:
        """For each call of `producer enqueue`, the kill or None."""
        rng = self._rng("producer")
        while True:
            is_killed = Kind.PRODUCER in self._only and rng.random() < _KILLED_PRODUCERS
            yield Planned(kind=Kind.PRODUCER, after_seconds=rng.uniform(0, _PRODUCER_SECONDS)) if is_killed else None

    def of_files(self, run: int) -> Iterator[Planned]:
        """The faults of a run's inputs and staged files."""
        rng = self._rng(f"files of {run}")
        for kind in self._kinds(_FILES_DECK, rng):
            yield Planned(
                kind=kind, after_seconds=rng.uniform(0, _FILES_SECONDS), lasts_seconds=rng.uniform(*_REPLACED_SECONDS)
            )

    def of_pauses(self, run: int) -> Iterator[Planned]:
        """The pauses of a run, after its enqueue or the end of the pause before. Most runs have none."""
        rng = self._rng(f"pauses of {run}")
        pauses = rng.choice(_PAUSES) if Kind.PAUSE in self._only else 0
        for _ in range(pauses):
            yield Planned(
                kind=Kind.PAUSE,
                after_seconds=rng.uniform(*_UNTIL_PAUSE_SECONDS),
                lasts_seconds=rng.uniform(*_PAUSED_SECONDS),
            )

    def max_workers_of(self, run: int) -> int | None:
        """How many workers may hold shards of a run at once. None, for most runs: any number."""
        return self._rng(f"limit of {run}").choice(_LIMITS) if Kind.LIMIT in self._only else None

    @property
    def output_faults(self) -> int:
        """How often the published output of each run is damaged."""
        return _OUTPUT_FAULTS if Kind.OUTPUT in self._only else 0

    def rng_of_power(self) -> random.Random:
        """The random numbers that decide what a power loss removes."""
        return self._rng("power")

    def _rng(self, victim: str) -> random.Random:
        return random.Random(f"{self._seed} {victim}")

    def _kinds(self, deck: dict[Kind, int], rng: random.Random) -> Iterator[Kind]:
        """Shuffled decks, one after another, so that every kind comes with its intended frequency."""
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
