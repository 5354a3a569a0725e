"""The victims of faults, and how each fault is injected. A victim that ends is started again at once.

`see` tells a victim of an event in the fleet, which may show that the victim is at work. `tick` injects the faults that
are due, and returns them.
"""

import os
import random
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

import psutil

from chaos.events import Event
from chaos.faults import Fault, Kind, Planned
from chaos.power import Disk
from shardsift.fleet.process.children import Child, running
from support.proxy import Proxy
from support.redis_servers import RedisServer

_LEAVE_SECONDS = 15.0  # for a worker or machine to exit: SHARDSIFT_STOP_SECONDS plus a margin for a busy machine
_IDLE_SECONDS = 1.0  # for a loaded child to claim a shard
_RUN_SECONDS = 10.0  # duration of a run; most power losses restore a state that is not older
_STOP_SECONDS = 20.0  # for a service to end at the end of the storm
_WAIT_FOR_END_SECONDS = 8.0  # wait this long for a run to end, then kill the finalizer anyway


class Service:
    """A command that can be started again. Each of its processes leads its own session and process group."""

    def __init__(self, command: Sequence[str], *, environment: Mapping[str, str], log: Path) -> None:
        self._command = list(command)
        self._environment = environment
        self._running = ExitStack()
        self.log = log
        self.process: Child

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def is_running(self) -> bool:
        return self.process.poll() is None

    def start(self) -> None:
        """Start the command. Call this in the main thread: the kernel ends a process when the thread that started it ends."""
        self.process = self._running.enter_context(
            running(self._command, log=self.log, stop_seconds=_STOP_SECONDS, environment=self._environment)
        )

    def start_again(self) -> None:
        self._running.close()
        self.start()

    def signal_group(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.pid, number)

    def stop(self) -> None:
        """Stop the process with SIGTERM, and with SIGKILL if that takes too long."""
        self._running.close()


class Victim:
    """The planned faults of one victim. Each fault becomes due some time after the victim was seen at work."""

    def __init__(self, plans: Iterator[Planned]) -> None:
        self._plans = plans
        self._next: Planned | None = None
        self._due_at: float | None = None

    def calm_down(self) -> None:
        self._plans = iter(())
        self._next = self._due_at = None

    def at_work(self, now: float, *, idle_seconds: float = 0.0) -> None:
        """Note that the victim is working. The next fault becomes due after `idle_seconds` and its own pause, or earlier."""
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
        """Return the fault to inject now, if one is due, and remove it from the plan."""
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
    """A worker, or a machine: a supervisor with its workers. It has its own proxy.

    `may_start` says whether Redis is up. Without Redis, a new worker would exit at once.
    """

    def __init__(
        self, name: str, service: Service, proxy: Proxy, plans: Iterator[Planned], may_start: Callable[[], bool]
    ) -> None:
        self.name = name
        self._may_start = may_start
        self.service = service
        self.victim = Victim(plans)
        self.unasked_ends: list[int] = []  # exit codes
        self.problems: list[str] = []
        self._proxy = proxy
        self._child_pid = 0  # of a machine: the parent of the worker that was last seen
        self._lasting: tuple[Kind, float] | None = None  # a fault and when it ends
        self._is_ending = False
        self._leaving: list[tuple[Fault, list[psutil.Process]]] = []  # processes that must end, and why

    def see(self, event: Event) -> None:
        """Note an event. A child that has loaded its model is hit soon, even if it is still waiting for a shard."""
        if event.what not in ("loaded", "claim"):
            return
        if event.parent == self.service.pid:
            self._child_pid = event.pid
        elif _child(event.parent, of=self.service.pid):
            self._child_pid = event.parent
        else:
            return
        if not self._lasting and not self._is_ending:
            self.victim.at_work(event.at, idle_seconds=0.0 if event.what == "claim" else _IDLE_SECONDS)

    def tick(self, now: float) -> Iterator[Fault]:
        self._look_after_leaving(now)
        if self._lasting and now >= self._lasting[1]:
            self._end_lasting()
        if not self.service.is_running:
            if self._may_start():
                self._start_again()
        elif not self._is_ending and not self._lasting and (planned := self.victim.due(now)):
            fault = Fault(kind=planned.kind, at=now, victim=self.name)
            if self._put_in(fault, planned):
                yield fault

    def stop(self) -> None:
        if self._lasting:
            self._end_lasting()
        self.service.stop()

    def _put_in(self, fault: Fault, planned: Planned) -> bool:
        """Inject a fault. Returns False if its target does not exist. A supervisor is alone in its process group."""
        match fault.kind:
            case Kind.CHILD | Kind.SUPERVISED:
                return self._kill_child(fault)
            case Kind.PARENT | Kind.SUPERVISOR:
                self._end_by(fault)
                self.service.process.kill()
            case Kind.GROUP:
                self._end_by(fault)
                self.service.signal_group(signal.SIGKILL)
            case Kind.NOTICE_PARENT | Kind.NOTICE_SUPERVISOR:
                self._end_by(fault)
                self.service.process.terminate()
            case Kind.NOTICE_GROUP:
                self._end_by(fault)
                self.service.signal_group(signal.SIGTERM)
            case Kind.FREEZE | Kind.FREEZE_SUPERVISOR:
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
            self._lasting = fault.kind, fault.at + planned.lasts_seconds
        return True

    def _kill_child(self, fault: Fault) -> bool:
        child = _child(self._child_pid, of=self.service.pid)
        if child is None:
            return False
        if fault.kind == Kind.SUPERVISED:
            self._leaving.append((fault, _with_descendants(child.pid)))
        child.kill()
        return True

    def _end_by(self, fault: Fault) -> None:
        self._is_ending = True
        self._leaving.append((fault, _with_descendants(self.service.pid)))

    def _end_lasting(self) -> None:
        assert self._lasting
        kind, self._lasting = self._lasting[0], None
        if kind in (Kind.FREEZE, Kind.FREEZE_SUPERVISOR):
            self.service.signal_group(signal.SIGCONT)
        else:
            self._proxy.heal()

    def _start_again(self) -> None:
        """Start the command again. Descendants of a killed process may still be alive for a moment."""
        if not self._is_ending:
            self.unasked_ends.append(self.service.process.returncode)
        if self._lasting:
            self._end_lasting()
        self._is_ending, self._child_pid = False, 0
        self.victim.not_at_work()
        self.service.start_again()

    def _look_after_leaving(self, now: float) -> None:
        """Check that the processes of a stopped or killed worker end in time. Kills those that do not."""
        for fault, processes in list(self._leaving):
            left = [process for process in processes if _is_alive(process)]
            if left and now - fault.at <= _LEAVE_SECONDS:
                continue
            if left:
                pids = ", ".join(str(process.pid) for process in left)
                self.problems.append(f"{self.name}, {_LEAVE_SECONDS:.0f} s after {fault.kind}: still running: {pids}")
            for process in left:
                process.kill()
            self._leaving.remove((fault, processes))


class Finalizer:
    def __init__(self, name: str, service: Service, plans: Iterator[Planned], may_start: Callable[[], bool]) -> None:
        self.name = name
        self._may_start = may_start
        self.service = service
        self.victim = Victim(plans)
        self.unasked_ends: list[int] = []  # exit codes
        self._is_ending = False

    def see(self, event: Event) -> None:
        if event.what == "due" and event.pid == self.service.pid and not self._is_ending:
            self.victim.at_work(event.at)

    def tick(self, now: float) -> Iterator[Fault]:
        if not self.service.is_running:
            if self._may_start():
                self._start_again()
        elif planned := self.victim.due(now):
            self._is_ending = True
            self.service.signal_group(signal.SIGKILL)
            yield Fault(kind=planned.kind, at=now, victim=self.name)

    def stop(self) -> None:
        self.service.stop()

    def _start_again(self) -> None:
        if not self._is_ending:
            self.unasked_ends.append(self.service.process.returncode)
        self._is_ending = False
        self.victim.not_at_work()
        self.service.start_again()


class RedisVictim:
    """Redis as a victim. It has faults only while `is_rough` is true."""

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
        self._down: tuple[Kind, float] | None = None  # a fault and when it ends
        self._is_coming_back = False

    @property
    def is_up(self) -> bool:
        return self._down is None and not self._is_coming_back

    def see(self, event: Event) -> None:
        if self.is_up and event.what in ("claim", "complete") and self._is_rough(event.at - self._began_at):
            self.victim.at_work(event.at)

    def tick(self, now: float) -> Iterator[Fault]:
        if self._down and now >= self._down[1]:
            self._come_back()
        elif self._is_coming_back and self.server.answers:
            self._is_coming_back = False
        elif self.is_up and (planned := self.victim.due(now)):
            fault = Fault(kind=planned.kind, at=now, victim=self.name)
            self._put_in(fault)
            self._down = fault.kind, now + planned.lasts_seconds
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
        kind, self._down = self._down[0], None
        self.server.thaw() if kind == Kind.FREEZE_REDIS else self.server.launch()
        self._is_coming_back = True


def _child(pid: int, *, of: int) -> psutil.Process | None:
    """Return the process with this id if it is alive and a child of `of`. Otherwise None."""
    try:
        process = psutil.Process(pid)
        return process if process.ppid() == of and _is_alive(process) else None
    except psutil.NoSuchProcess:
        return None


def _with_descendants(pid: int) -> list[psutil.Process]:
    try:
        process = psutil.Process(pid)
        return [process, *process.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def _is_alive(process: psutil.Process) -> bool:
    """Return whether a process is alive. A zombie is not."""
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def _first(planned: Planned, others: Iterator[Planned]) -> Iterator[Planned]:
    yield planned
    yield from others
