"""The pauses of one run: `producer pause`, some time later `producer resume`, and the check that no shard was claimed meanwhile.

An operator's command is repeated if Redis was down, and `resume` also if a power loss has taken it back.
"""

from collections.abc import Callable, Iterator
from enum import Enum, auto

import redis

from chaos.kinds import Fault, Kind, Planned
from chaos.promises import Broken, Promise
from chaos.service import Service
from fleet.ledger import Ledger
from fleet.ledger.base import Keys


class _State(Enum):
    GOES_ON = auto()
    PAUSING = auto()
    PAUSED = auto()
    RESUMING = auto()


class Pauses:
    """`command` gives the service of `producer pause` or `producer resume`, not started."""

    def __init__(self, victim: str, plans: Iterator[Planned], ledger: Ledger) -> None:
        self._victim = victim
        self._plans = plans
        self._ledger = ledger
        self._state = _State.GOES_ON
        self._next = next(plans, None)
        self._due_at: float | None = None
        self._service: Service | None = None
        self._fault: Fault | None = None
        self._claims = 0  # of the run, when it was paused
        self._is_forgiven = False  # a power loss may have taken the pause back
        self.was_paused = False
        self.problems: list[Broken] = []

    def see_power_loss(self) -> None:
        self._is_forgiven = True

    def tick(self, now: float, run_id: str, *, may_begin: bool, command: Callable[[str], Service]) -> Iterator[Fault]:
        """`may_begin` says whether the run has open shards, and the storm still rages."""
        try:
            yield from self._tick(now, run_id, may_begin=may_begin, command=command)
        except redis.RedisError:  # it is down, because of a fault; look again later
            return

    def _tick(self, now: float, run_id: str, *, may_begin: bool, command: Callable[[str], Service]) -> Iterator[Fault]:
        match self._state:
            case _State.GOES_ON if self._ledger.pause_reason(run_id) is not None:
                self._type(command("resume"), _State.RESUMING)
            case _State.GOES_ON if may_begin and self._next:
                self._due_at = self._due_at or now + self._next.after_seconds
                if now >= self._due_at:
                    self._is_forgiven = False
                    self._type(command("pause"), _State.PAUSING)
            case _State.PAUSING if self._has_ended(run_id):
                yield from self._begin(now, run_id)
            case _State.PAUSED if self._due_at and (now >= self._due_at or not may_begin):
                self._check(run_id)
                self._type(command("resume"), _State.RESUMING)
            case _State.RESUMING if self._has_ended(run_id):
                self._end(now)

    def _type(self, service: Service, state: _State) -> None:
        self.stop()
        self._service, self._state = service, state
        service.start()

    def _has_ended(self, run_id: str) -> bool:
        """Whether the command has done its work. One that found no Redis is started again."""
        assert self._service
        if self._service.is_running:
            return False
        if self._service.process.returncode == 0:
            return True
        if self._state == _State.PAUSING and not self._ledger.counts(run_id).open:
            self._state, self._next = _State.GOES_ON, None  # the run was faster
            return False
        self._service.start_again()
        return False

    def _begin(self, now: float, run_id: str) -> Iterator[Fault]:
        assert self._next
        self._claims = self._claims_of(run_id)
        self._state, self._due_at, self.was_paused = _State.PAUSED, now + self._next.lasts_seconds, True
        self._fault = Fault(kind=Kind.PAUSE, at=now, victim=self._victim)
        yield self._fault

    def _check(self, run_id: str) -> None:
        """Each claim has a number. The script that claims sees the pause, so there is none after `producer pause`."""
        claims = self._claims_of(run_id)
        if claims != self._claims and not self._is_forgiven:
            what = f"{self._victim}: {claims - self._claims} shards were claimed while it was paused"
            self.problems.append(Broken(Promise.NOT_HELD, what))

    def _end(self, now: float) -> None:
        if self._fault:
            self._fault.over_at = now
        self._state, self._fault, self._due_at = _State.GOES_ON, None, None
        self._next = next(self._plans, None)

    def _claims_of(self, run_id: str) -> int:
        return int(self._ledger.redis.hget(Keys(run_id).run, "fence") or 0)

    def stop(self) -> None:
        if self._service:
            self._service.stop()
