"""Run `worker start`: keep a worker in each slot of this machine, with the models that open runs need."""

import logging
import os
import signal
import socket
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, suppress

import redis

from shardsift.fleet.errors import UsageError, require
from shardsift.fleet.ledger import Ledger
from shardsift.fleet.ledger.connect import START_SECONDS
from shardsift.fleet.presence.announcements import (
    MachineState,
    WorkerState,
    announce_machine,
    list_workers,
    withdraw_machine,
)
from shardsift.fleet.presence.demand import Demand, Load, Wanted, open_demands
from shardsift.fleet.process.children import handling
from shardsift.fleet.process.logs import log_to_stderr
from shardsift.fleet.process.redact import redacted
from shardsift.fleet.process.redis_away import as_ours
from shardsift.fleet.process.settings import Settings
from shardsift.fleet.process.wording import counted, parse_duration, shown_duration
from shardsift.fleet.scorers.kinds import resolve_models
from shardsift.fleet.storage.scratch import remove_abandoned, scratch_folder
from shardsift.worker.supervisor.slots import Slot, find_slots
from shardsift.worker.supervisor.supervised_worker import SupervisedWorker

_TICK_SECONDS = 0.2
_POLL_SECONDS = 5.0  # between two readings of the ledger
_REASON_CHARACTERS = 500  # limit of a reason in an announcement
_LATE_SECONDS = 2.0  # after `stop_seconds`, when a worker is killed; it needs about 1.5 s to stop by itself
logger = logging.getLogger(__name__)


def run_supervisor(
    settings: Settings,
    *,
    workers: int | None,
    name: str | None,
    exit_when_idle: str | None,
    on_idle: str | None,
) -> int:
    """Run the workers of this machine until stopped. Returns the exit code.

    Without `workers`, runs one per GPU. After the duration `exit_when_idle` without work, such as `10m`, stops the
    workers and runs the shell command `on_idle`. Raises UsageError before any worker starts.
    """
    idle_seconds = parse_duration(exit_when_idle) if exit_when_idle else None
    if on_idle and idle_seconds is None:
        raise UsageError("--on-idle runs after --exit-when-idle. Say after how long, such as --exit-when-idle 10m.")
    if settings.gpus_per_worker > 1:
        require(["accelerate"], "shardsift[sharded]", f"--gpus-per-worker {settings.gpus_per_worker}")
    per_worker = settings.gpus_per_worker
    slots = find_slots(workers=workers, gpus_per_worker=per_worker, device=settings.device, name=name)
    log_to_stderr()
    ledger = Ledger.connect(settings, wait_seconds=START_SECONDS)
    supervisor = Supervisor(slots, ledger, settings, idle_seconds=idle_seconds)
    code = supervisor.run()
    if on_idle and supervisor.ended_idle:
        code = _run_on_idle(on_idle) or code
    return code


def _wanted(settings: Settings) -> Wanted:
    """Return the user's limits on what workers serve.

    Resolves the models that the user named, so that a wrong name ends the command before a worker starts.
    """
    named = settings.model_fields_set
    scorer = settings.scorer if "scorer" in named else None
    dtype = settings.dtype if "dtype" in named else None
    if "model" not in named:
        return Wanted(scorer=scorer, dtype=dtype)
    models = resolve_models(settings.scorer, settings.models)
    any_revision = not any(revision for _, revision in settings.models)
    return Wanted(scorer=scorer, models=models, any_revision=any_revision, dtype=dtype)


def _run_on_idle(command: str) -> int:
    logger.info("Running: %s", command)
    code = subprocess.run(command, shell=True, check=False).returncode
    if code:
        logger.error("The command of --on-idle ended with exit code %d", code)
    return code


class Supervisor:
    """Runs one worker per slot. Each serves what open runs need, within the user's limits.

    Without `idle_seconds`, it never ends for lack of work.
    """

    def __init__(
        self,
        slots: Sequence[Slot],
        ledger: Ledger,
        settings: Settings,
        *,
        idle_seconds: float | None,
    ) -> None:
        self._wanted = _wanted(settings)
        self._only_run = settings.only_run
        self._preload = self._wanted.preload
        self.name = f"{socket.gethostname()}/{os.getpid()}"  # announced as this machine's name
        self._exit = ExitStack()
        remove_abandoned(settings.scratch_dir)
        self._exit.callback(remove_abandoned, settings.scratch_dir)  # at the end too, for killed workers
        folder = self._exit.enter_context(scratch_folder(settings.scratch_dir))
        self._workers = [SupervisedWorker(slot, folder=folder) for slot in slots]
        self._ledger = ledger
        self._idle_seconds = idle_seconds
        self._stop_seconds = settings.stop_seconds
        self._next_poll = 0.0
        self._idle_since: float | None = None  # None: there was something to do at the last poll
        self._unserved = 0  # queued shards that no worker here can serve
        self._redis_is_there = True
        self._signals = 0

    def run(self) -> int:
        """Run until stopped by a signal, until idle for too long, or until no worker can serve what the user wants.

        Returns the exit code. Call it in the main thread, because it handles SIGTERM and SIGINT.
        """
        logger.info(
            "Connected to Redis. Slots for workers: %s", ", ".join(worker.slot.name for worker in self._workers)
        )
        with self._exit, handling(signal.SIGTERM, signal.SIGINT, by=self._on_signal):
            while not self._signals and not self._is_idle_for_long and not self._is_hopeless:
                if time.monotonic() >= self._next_poll:
                    self._poll()
                    self._next_poll = time.monotonic() + _POLL_SECONDS
                for worker in self._workers:
                    worker.tend(may_start=self._redis_is_there)
                time.sleep(_TICK_SECONDS)
            return self._stop()

    def _on_signal(self, _number: int, _frame: object) -> None:
        self._signals += 1

    def _poll(self) -> None:
        try:
            demands = [demand for demand in open_demands(self._ledger) if self._wanted.admits(demand.load)]
            fleet = [state for state in list_workers(self._ledger.redis) if state.only_run == self._only_run]
            own = {state.name: state for state in fleet if state.name in {worker.owner for worker in self._workers}}
            announce_machine(self._ledger.redis, self._state(demands, own))
        except redis.RedisError as error:
            if self._redis_is_there:
                logger.warning("%s No worker is started meanwhile.", as_ours(error))
            self._redis_is_there = False
            return
        if not self._redis_is_there:
            logger.info("Redis answers again")
        self._redis_is_there = True
        self._assign(demands, fleet, own)
        self._unserved = sum(demand.queued for demand in demands if self._avoids(demand))
        is_needed = any(demand.queued and not self._avoids(demand) for demand in demands)
        is_starting = any(not worker.has_ended and not worker.has_loaded for worker in self._workers)
        if is_needed or is_starting or any(state.activity == "busy" for state in own.values()):
            self._idle_since = None
        elif self._idle_since is None:
            self._idle_since = time.monotonic()
            logger.info("No open run needs more workers here: waiting")

    def _state(self, demands: list[Demand], own: dict[str, WorkerState]) -> MachineState:
        return MachineState(
            name=self.name,
            devices=tuple(device for worker in self._workers for device in worker.slot.devices),
            free=sum(_may_move(worker, own.get(worker.owner or "")) for worker in self._workers),
            wanted=self._wanted,
            only_run=self._only_run,
            avoids={demand.queue: self._why_avoided(demand.load) for demand in demands if self._avoids(demand)},
        )

    def _assign(self, demands: list[Demand], fleet: list[WorkerState], own: dict[str, WorkerState]) -> None:
        """Move workers without a shard from queues that have enough workers to queues that lack some."""
        queued = {demand.queue: demand.queued for demand in demands}
        idle = [worker for worker in self._workers if _may_move(worker, own.get(worker.owner or ""))]
        free = free_workers(state for state in fleet if state.name not in own)
        # A worker that has just started is not announced yet, so own workers are counted here.
        free.update(worker.load.queue for worker in idle if worker.load)
        for worker in idle:
            load = next_load(demands, free, worker.why_avoided)
            is_needed = worker.load is not None and free[worker.load.queue] <= queued.get(worker.load.queue, 0)
            if is_needed:
                continue
            if load is None and worker.load is None and self._preload and not worker.why_avoided(self._preload):
                load = self._preload
            if load is not None and load != worker.load:
                if worker.load:
                    free[worker.load.queue] -= 1
                free[load.queue] += 1
                worker.serve(load)

    def _avoids(self, demand: Demand) -> bool:
        return all(worker.why_avoided(demand.load) for worker in self._workers)

    def _why_avoided(self, load: Load) -> str:
        """Return why no slot serves this load: the first slot's reason, shortened and redacted.

        Everyone who can read the ledger sees it.
        """
        reasons = (worker.why_avoided(load) for worker in self._workers)
        return redacted(next(reason for reason in reasons if reason))[:_REASON_CHARACTERS]

    @property
    def ended_idle(self) -> bool:
        return self._is_idle_for_long and not self._signals

    @property
    def _is_idle_for_long(self) -> bool:
        if self._idle_seconds is None or self._idle_since is None:
            return False
        return time.monotonic() - self._idle_since >= self._idle_seconds

    @property
    def _is_hopeless(self) -> bool:
        """Whether the models that the user named cannot be served in any slot."""
        return self._preload is not None and all(
            worker.has_ended and worker.load is None and worker.why_avoided(self._preload) for worker in self._workers
        )

    def _stop(self) -> int:
        """Stop all workers, which give their shards back. Returns the exit code.

        A further signal makes the workers exit immediately.
        """
        if self.ended_idle:
            idle = shown_duration(self._idle_seconds or 0)
            logger.info("The fleet has had nothing to do here for %s: stopping", idle)
        elif self._signals:
            logger.info("Stopping: the workers stop at their next batch, and return their shards to the queue")
        with suppress(redis.RedisError):  # if it fails, the record expires by itself
            withdraw_machine(self._ledger.redis, self.name)
        passed_on = 0
        deadline = time.monotonic() + self._stop_seconds + _LATE_SECONDS
        while not all(worker.has_ended for worker in self._workers):
            if passed_on < max(1, self._signals):
                passed_on += 1
                for worker in self._workers:
                    worker.terminate()
            if time.monotonic() > deadline:
                for worker in self._workers:
                    worker.kill()
            time.sleep(_TICK_SECONDS)
        logger.info("All workers have ended")
        return self._exit_code()

    def _exit_code(self) -> int:
        if self._signals:
            return 0
        if self._is_hopeless:
            logger.error("No worker here can serve %s: %s", self._preload, self._workers[0].reason())
            return self._workers[0].last_code
        if self._unserved:
            logger.error("%s wait, and no worker here could serve them", counted(self._unserved, "shard"))
            return max(worker.last_code for worker in self._workers) or 1
        return 0


def _may_move(worker: SupervisedWorker, state: WorkerState | None) -> bool:
    """Return whether a worker may get another load: it is loading a model, or is ready and has no shard.

    `state` is what the worker announces, None if nothing. A worker that has loaded its model and announces nothing must
    not move: it waits for its spot machine to end.
    """
    if state is None:
        return not worker.has_loaded
    return state.activity in ("loading", "ready")


def free_workers(workers: Iterable[WorkerState]) -> Counter[str]:
    """Count the workers that are loading a model or waiting for a shard, by queue."""
    return Counter(worker.queue for worker in workers if worker.activity in ("loading", "ready"))


def next_load(demands: Iterable[Demand], free: Counter[str], avoids: Callable[[Load], object]) -> Load | None:
    """Choose the load for one more worker: the load whose queue lacks the most workers.

    In a tie, chooses the first in `demands`, which belongs to the oldest run. `free` counts the workers without a
    shard by queue. Skips loads for which `avoids` returns a true value. Returns None if no queue lacks workers.
    """
    lacking = [demand for demand in demands if demand.queued > free[demand.queue] and not avoids(demand.load)]
    most = max(lacking, key=lambda demand: demand.queued - free[demand.queue], default=None)
    return most.load if most else None
