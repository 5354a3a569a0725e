"""The parent of a worker: decides when to take shards, queues the shards of a dead child, and ends the worker in time.

It imports no torch, and responds even while the child is busy.
"""

import logging
import os
import signal
import threading
import time
from collections.abc import Iterable
from contextlib import ExitStack, suppress
from typing import Any, NoReturn

from billiard import active_children
from billiard.exceptions import WorkerLostError
from celery import Celery
from celery.worker import state as celery_state

from shardsift.fleet.dispatch import send_due_shards
from shardsift.fleet.errors import ExitCode
from shardsift.fleet.ledger import Ledger
from shardsift.fleet.presence.announcements import WorkerState
from shardsift.fleet.process.logs import WORKER_NAME
from shardsift.fleet.process.redis_away import redis_may_be_away
from shardsift.fleet.process.settings import Settings
from shardsift.fleet.run.model import Model, queue_of_run, worker_queue
from shardsift.fleet.storage.scratch import scratch_folder
from shardsift.worker.service import ipc
from shardsift.worker.service.announcer import Announcer
from shardsift.worker.service.spot import watch_for_notice

_CHILD_LATE_SECONDS = 0.5  # before a child that should have stopped is killed
_PARENT_LATE_SECONDS = 1.0
_ONE_STOP_SECONDS = 1.0  # signals within this time count as one: the death of a supervisor with threads sends several
# The kernel sends the signal when a dying supervisor's first thread ends. Within this time, its last thread ends, too.
_SUPERVISOR_GONE_SECONDS = 0.05
_LOST_TASK_SECONDS = 3.0  # time for Celery to report a task whose process has died
_MAX_STARTS = 5
logger = logging.getLogger(__name__)


class Parent:
    """The duties of a worker's main process besides running Celery.

    It decides when to take shards, queues the shards of a dead child again, and ends the worker within the time for
    stopping. Create it in the main thread, before any child.
    """

    def __init__(
        self, app: Celery, settings: Settings, ledger: Ledger, models: tuple[Model, ...], *, hostname: str
    ) -> None:
        self._app = app
        self.queue = worker_queue(model.queue(settings.dtype) for model in models)
        self.message_queue = queue_of_run(self.queue, settings.only_run) if settings.only_run else self.queue
        self._settings = settings
        self._ledger = ledger
        self._owner = ipc.owner_name(hostname, os.getpid())
        self._supervisor = os.getppid()
        self._exit = ExitStack()
        self._folder = self._exit.enter_context(scratch_folder(settings.scratch_dir))
        self._starting: set[int] = set()  # children started since a child last loaded its model
        self._has_served = False
        self._is_stopping = False
        self._stopping_since = 0.0
        self._time_is_up = False
        self._was_told_to_leave = False
        self._is_idling = False
        self._all_lived_at = time.monotonic()
        self._stop_seconds = settings.stop_seconds  # a spot notice may leave less
        self._is_reclaimed = False  # whether there was a spot notice
        self._models = models
        loads = WorkerState(
            name=self._owner,
            queue=self.queue,
            model=" + ".join(model.name for model in models),
            revision=" + ".join(model.revision for model in models),
            dtype=settings.dtype,
            activity="loading",
            activity_seconds=0.0,
            only_run=settings.only_run,
        )
        self._announcer = Announcer(ledger.redis, loads)
        os.environ |= {ipc.FOLDER: str(self._folder), ipc.PARENT: str(os.getpid()), "PYTHONSAFEPATH": "1"}
        _quieten_semaphore_tracker()
        ipc.hand_down(models)
        for number in (signal.SIGTERM, signal.SIGINT):  # until Celery sets its own handlers
            signal.signal(number, lambda _number, _frame: self._leave())

    def log_what_is_served(self) -> None:
        loaded = " and ".join(f"{model.name} at {model.revision}" for model in self._models)
        logger.info("%s loads %s, and serves the queue %s", self._owner, loaded, self.queue)

    def may_take_shards(self, children: Iterable[int]) -> bool:
        """Return whether a child has loaded its model and the worker is not stopping.

        Runs in every turn of Celery's event loop, so it also announces the worker's state and looks for dead children.
        """
        children = set(children)
        device = next((device for child in children if (device := ipc.found_loaded(self._folder, child))), None)
        self._watch_starts(children, is_loaded=device is not None)
        if device and not self._has_served:
            self._has_served = True
            if self._settings.device == "auto":
                os.environ["SHARDSIFT_DEVICE"] = device  # a later child must use the same kind of device
            ipc.report_ready()
            logger.info("%s is ready.", self._owner)
        held = ipc.found_held(self._folder)
        self._watch_deaths(held.keys() - children)
        last = next((shards[-1] for shards in held.values() if shards), None)
        self._announcer.see(device, last, is_stopping=self._is_stopping)
        return device is not None and not self._is_stopping

    def _watch_starts(self, children: set[int], *, is_loaded: bool) -> None:
        """End a worker whose processes keep dying while they load, for example from lack of memory.

        Celery would restart them without limit.
        """
        self._starting = set() if is_loaded else self._starting | children
        if len(self._starting) > _MAX_STARTS and not self._is_stopping:
            ipc.leave_failure(
                f"{_MAX_STARTS} processes in a row ended before they had loaded the model. The worker's log may say why. "
                "The kernel's log says so if they ran out of memory."
            )
            os.kill(os.getpid(), signal.SIGTERM)

    def watch_for_spot_notice(self) -> None:
        if cloud := self._settings.spot_notice:
            about = {"address": self._settings.spot_notice_address, "on_notice": self._on_notice}
            threading.Thread(
                target=watch_for_notice, args=(cloud,), kwargs=about, name="spot notice", daemon=True
            ).start()

    def _on_notice(self, seconds_left: float) -> None:
        """Stop Celery and the child after a spot notice.

        Sends no SIGTERM, so that the first SIGTERM is the cloud's, which ends the process.
        """
        self._is_reclaimed = True
        late = _CHILD_LATE_SECONDS + _PARENT_LATE_SECONDS
        self._stop_seconds = max(0.0, min(self._stop_seconds, seconds_left - late))
        celery_state.should_stop = ExitCode.DONE
        self._stop_child()

    def on_shutting_down(self, **_: Any) -> None:
        """Stop the child. If no child has loaded its model yet, or the time for stopping is over, exit immediately.

        Also exits immediately if Celery has ended, and the worker only waits for its spot machine to end. Runs in
        Celery's handler of SIGTERM and SIGINT, so it may interrupt the main thread at any line.
        """
        self._was_told_to_leave = True
        if self._is_idling or self._time_is_up or not self._has_served:
            self._leave()
        self._stop_child()

    def _stop_child(self) -> None:
        """Stop the child at the next batch. A second call makes it exit immediately.

        A call within a second of the first does nothing, because Linux sends one signal for each thread of a dead
        supervisor.
        """
        is_first = not self._is_stopping
        if is_first:
            self._stopping_since = time.monotonic()
            self._is_stopping = True
        elif time.monotonic() - self._stopping_since < _ONE_STOP_SECONDS:
            return
        self._signal_children(ipc.STOP_SIGNAL)
        if is_first:
            threading.Thread(target=self._end_in_time, name="end in time", daemon=True).start()

    def _end_in_time(self) -> None:
        """Kill a child that does not stop in time, then exit even if Celery still waits for the child."""
        time.sleep(_SUPERVISOR_GONE_SECONDS)
        if os.environ.get(WORKER_NAME) and os.getppid() != self._supervisor:
            logger.warning("The supervisor of this worker (process %d) has died: stopping", self._supervisor)
        time.sleep(self._stop_seconds)
        self._signal_children(ipc.STOP_SIGNAL)  # the second signal: give the shard back and exit
        time.sleep(_CHILD_LATE_SECONDS)
        self._signal_children(signal.SIGKILL)
        time.sleep(_PARENT_LATE_SECONDS)
        self._time_is_up = True
        if self._leaves_at_the_end:
            logger.warning("Exiting without a clean shutdown: the time for stopping is over")
            self._leave()

    @property
    def _leaves_at_the_end(self) -> bool:
        return self._was_told_to_leave or not self._is_reclaimed

    def _signal_children(self, number: signal.Signals) -> None:
        for child in active_children():  # unlike Celery's pool, this lists a child that is about to start
            with suppress(ProcessLookupError):  # it has already exited
                os.kill(child.pid, number)

    def _leave(self) -> NoReturn:
        self._signal_children(signal.SIGKILL)
        self._announcer.withdraw()
        code = self._exit_code(ExitCode.DONE)
        self._exit.close()
        os._exit(code)

    def finish(self, code: int) -> int:
        """Clean up after Celery has ended. Returns the exit code.

        After a spot notice, waits for SIGTERM or the end of the machine.
        """
        self._announcer.withdraw()
        if not self._leaves_at_the_end:
            self._idle()
        code = self._exit_code(code)
        self._exit.close()
        return code

    def _idle(self) -> NoReturn:
        """Wait for SIGTERM. After an exit, a supervisor would restart the worker, which would claim another shard."""
        logger.warning("This worker takes no more shards, and waits for the machine to end")
        self._is_idling = True
        while not self._was_told_to_leave:
            signal.pause()
        self._leave()

    def _exit_code(self, code: int) -> int:
        failure = ipc.found_failure(self._folder)
        if failure is None:
            return code
        ipc.report_end(failure)
        return ExitCode.NO_MODEL

    def on_task_failure(self, exception: BaseException | None = None, **_: Any) -> None:
        if isinstance(exception, WorkerLostError):
            alive = {child.pid for child in active_children()}
            self._queue_shards_of(ipc.found_held(self._folder).keys() - alive, str(exception))

    def _watch_deaths(self, dead: set[int]) -> None:
        """Queue the shards of a child that died while it stored a shard, between two tasks.

        Celery does not report such a death.
        """
        if not dead:
            self._all_lived_at = time.monotonic()
        elif time.monotonic() - self._all_lived_at > _LOST_TASK_SECONDS:
            self._queue_shards_of(dead, "it was storing the shard")

    def _queue_shards_of(self, dead: Iterable[int], why: str) -> None:
        """Queue the shards of dead children again. If this fails, they are queued when their leases expire."""
        error = f"The process that worked on it died: {why}"
        trace = ipc.take_crash_reports(self._folder)
        for run_id, shard in [shard for child in dead for shard in ipc.take_held(self._folder, child)]:
            logger.error(
                "Shard %s of %s: %s\n%s", shard, run_id, error, trace, extra={"run_id": run_id, "shard": shard}
            )
            with redis_may_be_away():
                self._ledger.report_crash(run_id, shard, self._owner, error, trace)
                send_due_shards(self._app, self._ledger, run_id)


def _quieten_semaphore_tracker() -> None:
    """Silence billiard's helper process, which warns about the semaphores of killed processes."""
    asked = os.environ.get("PYTHONWARNINGS")
    os.environ["PYTHONWARNINGS"] = ",".join(filter(None, [asked, "ignore:semaphore_tracker"]))
