"""The victims of faults, and how each fault is injected. A victim that ends is started again at once.

`see` passes an event of the fleet to a victim, which learns from it whether it is at work. `tick` injects the faults that are
due, and returns them.
"""

import random
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import suppress

import psutil

from chaos.events import Event
from chaos.kinds import Fault, Kind, Planned
from chaos.power import Disk
from chaos.service import Service
from support.proxy import Proxy
from support.redis_servers import RedisServer

_LEAVE_SECONDS = 15.0  # for a worker to exit: SHARDSIFT_STOP_SECONDS plus a margin for a busy machine
_IDLE_SECONDS = 1.0  # for a loaded child to claim a shard
_RUN_SECONDS = 10.0  # duration of a run; most power losses restore a state that is not older
_WAIT_FOR_END_SECONDS = 8.0  # wait this long for a run to end, then kill the finalizer anyway


class Victim:
    """The planned faults of one victim. Each becomes due some time after the victim was seen at work."""

    def __init__(self, plans: Iterator[Planned]) -> None:
        self._plans = plans
        self._next: Planned | None = None
        self._due_at: float | None = None

    def calm_down(self) -> None:
        """Plan no more faults."""
        self._plans = iter(())
        self._next = self._due_at = None

    def at_work(self, now: float, *, idle_seconds: float = 0.0) -> None:
        """Note that the victim works. The next fault becomes due after `idle_seconds` and its own pause, or earlier."""
        if self._next is None:
            self._next = next(self._plans, None)
        if self._next:
            pause = _WAIT_FOR_END_SECONDS if self._next.at_the_end_of_a_run else self._next.after_seconds
            due_at = now + pause + idle_seconds
            self._due_at = due_at if self._due_at is None else min(self._due_at, due_at)

    def run_ends(self, now: float) -> None:
        if self._next and self._next.at_the_end_of_a_run and self._due_at:
            self._due_at = min(self._due_at, now + self._next.after_seconds)

    def due(self, now: float) -> Planned | None:
        """The fault to inject now, if one is due."""
        if self._next is None or self._due_at is None or now < self._due_at:
            return None
        planned, self._next, self._due_at = self._next, None, None
        return planned

    def not_at_work(self) -> None:
        """Postpone the next fault until the victim is seen at work again."""
        if self._next:
            self._plans = _first(self._next, self._plans)
            self._next = self._due_at = None


class Worker:
    """A worker with its proxy. `may_start` says whether Redis is up; without Redis a new worker would exit at once."""

    def __init__(
        self, name: str, service: Service, proxy: Proxy, plans: Iterator[Planned], may_start: Callable[[], bool]
    ) -> None:
        self.name = name
        self._may_start = may_start
        self.service = service
        self.victim = Victim(plans)
        self.unasked_ends: list[tuple[float, int]] = []
        self.problems: list[str] = []
        self._proxy = proxy
        self._child_pid = 0
        self._lasting: tuple[Fault, float] | None = None  # with its end
        self._ending: Fault | None = None
        self._orphans: list[tuple[Fault, int]] = []  # the kill of a parent, and the process id of its child

    def see(self, event: Event) -> None:
        """A child that has loaded its model is hit soon, even if it is still waiting for a shard."""
        if event.parent == self.service.pid and event.what in ("loaded", "claim"):
            self._child_pid = event.pid
            if not self._lasting and not self._ending:
                self.victim.at_work(event.at, idle_seconds=0.0 if event.what == "claim" else _IDLE_SECONDS)

    def tick(self, now: float) -> Iterator[Fault]:
        self._look_after_orphans(now)
        if self._lasting and now >= self._lasting[1]:
            self._end_lasting(now)
        if not self.service.is_running:
            if self._may_start():
                self._start_again(now)
        elif self._ending and now - self._ending.at > _LEAVE_SECONDS:
            self.problems.append(f"{self.name} did not exit within {_LEAVE_SECONDS:.0f} s after {self._ending.kind}")
            self.service.signal_group(signal.SIGKILL)
        elif not self._ending and not self._lasting and (planned := self.victim.due(now)):
            fault = Fault(kind=planned.kind, at=now, victim=self.name, pid=self.service.pid)
            if self._put_in(fault, planned):
                yield fault

    def stop(self) -> None:
        if self._lasting:
            self._end_lasting(self._lasting[1])
        self.service.stop()

    def _put_in(self, fault: Fault, planned: Planned) -> bool:
        """Inject a fault. Returns False if its target does not exist."""
        match fault.kind:
            case Kind.CHILD:
                return self._kill_child()
            case Kind.PARENT:
                self.service.process.kill()
                self._ending = fault
            case Kind.GROUP:
                self.service.signal_group(signal.SIGKILL)
                self._ending = fault
            case Kind.NOTICE_PARENT:
                self.service.process.terminate()
                self._ending = fault
            case Kind.NOTICE_GROUP:
                self.service.signal_group(signal.SIGTERM)
                self._ending = fault
            case Kind.FREEZE:
                self.service.signal_group(signal.SIGSTOP)
            case Kind.CUT:
                self._proxy.cut()
            case Kind.HALF_OPEN:
                self._proxy.go_silent()
            case Kind.DELAY:
                self._proxy.delay(planned.lasts_seconds / 10)
            case _:
                raise ValueError(f"{fault.kind} is not a fault of a worker")
        if planned.lasts_seconds:
            self._lasting = fault, fault.at + planned.lasts_seconds
        return True

    def _kill_child(self) -> bool:
        with suppress(psutil.NoSuchProcess):
            child = psutil.Process(self._child_pid)
            if child.ppid() == self.service.pid:
                child.kill()
                return True
        return False

    def _end_lasting(self, now: float) -> None:
        assert self._lasting
        fault, self._lasting = self._lasting[0], None
        fault.over_at = now
        if fault.kind == Kind.FREEZE:
            self.service.signal_group(signal.SIGCONT)
        else:
            self._proxy.heal()

    def _start_again(self, now: float) -> None:
        """Start the worker again, even if the child of a killed parent is still alive for a moment."""
        if self._ending is None:
            self.unasked_ends.append((now, self.service.process.returncode))
        elif self._ending.kind == Kind.PARENT:
            self._orphans.append((self._ending, self._child_pid))
        else:
            self._ending.over_at = now
        if self._lasting:
            self._end_lasting(now)
        self._ending, self._child_pid = None, 0
        self.victim.not_at_work()
        self.service.start_again()

    def _look_after_orphans(self, now: float) -> None:
        """Check that a child ends by itself after its parent was killed."""
        for fault, pid in list(self._orphans):
            if not pid or not psutil.pid_exists(pid):
                fault.over_at = now
                self._orphans.remove((fault, pid))
            elif now - fault.at > _LEAVE_SECONDS:
                self.problems.append(f"The child {pid} of {self.name} still runs without its parent")
                self._orphans.remove((fault, pid))


class Finalizer:
    def __init__(self, name: str, service: Service, plans: Iterator[Planned], may_start: Callable[[], bool]) -> None:
        self.name = name
        self._may_start = may_start
        self.service = service
        self.victim = Victim(plans)
        self.unasked_ends: list[tuple[float, int]] = []
        self.pids: set[int] = set()
        self._ending: Fault | None = None

    def see(self, event: Event) -> None:
        if event.what == "due" and event.pid == self.service.pid and not self._ending:
            self.victim.at_work(event.at)

    def tick(self, now: float) -> Iterator[Fault]:
        self.pids.add(self.service.pid)
        if not self.service.is_running:
            if self._may_start():
                self._start_again(now)
        elif planned := self.victim.due(now):
            self._ending = Fault(kind=planned.kind, at=now, victim=self.name, pid=self.service.pid)
            self.service.signal_group(signal.SIGKILL)
            yield self._ending

    def stop(self) -> None:
        self.service.stop()

    def _start_again(self, now: float) -> None:
        if self._ending is None:
            self.unasked_ends.append((now, self.service.process.returncode))
        self._ending = None
        self.victim.not_at_work()
        self.service.start_again()


class RedisVictim:
    """Redis as a victim. It has faults only while `is_rough` is true. `fault.over_at` is the time of its next answer."""

    def __init__(
        self,
        server: RedisServer,
        disk: Disk,
        plans: Iterator[Planned],
        is_rough: Callable[[float], bool],
        rng: random.Random,
    ) -> None:
        self._disk = disk
        self._rng = rng
        self._is_rough = is_rough
        self._began_at = time.time()
        self.name = "redis"
        self.server = server
        self.victim = Victim(plans)
        self._down: tuple[Fault, float] | None = None  # with its end
        self._coming_back: Fault | None = None

    @property
    def is_up(self) -> bool:
        return self._down is None and self._coming_back is None

    def see(self, event: Event) -> None:
        if self.is_up and event.what in ("claim", "complete") and self._is_rough(event.at - self._began_at):
            self.victim.at_work(event.at)

    def tick(self, now: float) -> Iterator[Fault]:
        if self._down and now >= self._down[1]:
            self._come_back()
        elif self._coming_back and self.server.answers:
            self._coming_back.over_at = now
            self._coming_back = None
        elif self.is_up and (planned := self.victim.due(now)):
            fault = Fault(kind=planned.kind, at=now, victim=self.name, pid=self.server.process.pid)
            self._put_in(fault)
            self._down = fault, now + planned.lasts_seconds
            yield fault
        elif self.is_up:
            self._disk.tick()

    def _put_in(self, fault: Fault) -> None:
        match fault.kind:
            case Kind.REDIS:
                self.server.kill()
            case Kind.POWER:
                self._disk.fail(self._rng, began_at=fault.at - _RUN_SECONDS)
            case _:
                self.server.freeze()

    def _come_back(self) -> None:
        assert self._down
        fault, self._down = self._down[0], None
        self.server.thaw() if fault.kind == Kind.FREEZE_REDIS else self.server.launch()
        self._coming_back = fault


def _first(planned: Planned, others: Iterator[Planned]) -> Iterator[Planned]:
    yield planned
    yield from others
