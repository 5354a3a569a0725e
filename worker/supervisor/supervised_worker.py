"""The worker process of one slot: start it, restart it with a growing pause, replace it and stop it."""

import logging
import signal
import socket
import time
from pathlib import Path

from shardsift.fleet.errors import ExitCode
from shardsift.fleet.presence.demand import Load
from shardsift.fleet.process.children import Child, kill, start_process
from shardsift.fleet.process.command_line import own_command
from shardsift.fleet.process.logs import WORKER_NAME
from shardsift.fleet.process.wording import shown_duration
from shardsift.worker.service.ipc import READY, REASON, owner_name
from shardsift.worker.supervisor.slots import Slot

_FIRST_PAUSE_SECONDS = 1.0
_MAX_PAUSE_SECONDS = 60.0
_MAX_STARTS = 5  # in a row without loading the model
_AVOID_SECONDS = 600.0  # before a load that could not be served here is tried again
_HOPELESS = (ExitCode.USAGE, ExitCode.NO_MODEL)  # with these, another start would fail in the same way
logger = logging.getLogger(__name__)


class SupervisedWorker:
    """A worker process in one slot.

    `load` has the models that it serves, or will serve next. None if no process should run.
    """

    def __init__(self, slot: Slot, *, folder: Path) -> None:
        self.slot = slot
        self.load: Load | None = None
        self.process: Child | None = None
        self.last_code = 0
        self._running: Load | None = None  # the load of `process`
        self._reason = folder / f"{slot.name}.reason"
        self._ready = folder / f"{slot.name}.ready"
        self._starts = 0  # since a worker here last loaded its model
        self._pause_ends = 0.0
        self._avoided: dict[str, tuple[float, str]] = {}  # queue → monotonic time of the next try, and the reason

    @property
    def owner(self) -> str | None:
        return owner_name(f"{self.slot.name}@{socket.gethostname()}", self.process.pid) if self.process else None

    @property
    def has_loaded(self) -> bool:
        """Whether the process, or the last one if none runs, has loaded its model."""
        return self._ready.exists()

    def why_avoided(self, load: Load) -> str | None:
        """Return why this slot recently failed to serve this load. None if it may try."""
        until, reason = self._avoided.get(load.queue, (0.0, ""))
        return reason if until > time.monotonic() else None

    def serve(self, load: Load) -> None:
        """Serve this load from now on. A process with another load is stopped first, and gives its shard back."""
        if load != self.load:
            self.load, self._starts, self._pause_ends = load, 0, 0.0
            if self.process:
                self.process.terminate()

    def tend(self, *, may_start: bool) -> None:
        """Handle the end of the process, and start the next process when it is due."""
        if self.process and self.process.poll() is not None:
            self._on_end(self.process.returncode)
        if not self.process and self.load and may_start and time.monotonic() >= self._pause_ends:
            self._start(self.load)

    def _start(self, load: Load) -> None:
        for file in (self._reason, self._ready):
            file.unlink(missing_ok=True)
        self._starts += 1
        self._running = load
        self.process = start_process(
            own_command("worker", "serve", "--name", self.slot.name),
            environment={
                **load.environment,
                **self.slot.environment,
                WORKER_NAME: self.slot.name,
                REASON: str(self._reason),
                READY: str(self._ready),
            },
        )
        logger.info("%s starts with %s (process %d)", self.slot.name, load, self.process.pid)

    def _on_end(self, code: int) -> None:
        assert self._running
        ended, self.process, self._running = self._running, None, None
        if ended != self.load:
            logger.info("%s has stopped serving %s", self.slot.name, ended)
            return
        self.last_code = code
        if self.has_loaded:
            self._starts = 0
        if code in _HOPELESS or self._starts >= _MAX_STARTS:
            reason = self.reason()
            self._avoided[ended.queue] = time.monotonic() + _AVOID_SECONDS, reason
            self.load = None
            again = f"It is tried again in {shown_duration(_AVOID_SECONDS)}, if it is still needed"
            logger.error("%s cannot serve %s: %s. %s", self.slot.name, ended, reason.rstrip("."), again)
            return
        pause = min(_FIRST_PAUSE_SECONDS * 2 ** max(self._starts - 1, 0), _MAX_PAUSE_SECONDS)
        self._pause_ends = time.monotonic() + pause
        logger.warning(
            "%s has ended: %s. It starts again in %.0f s. If it had a shard, a worker resumes that when its lease expires",
            *(self.slot.name, self.reason(), pause),
        )

    def reason(self) -> str:
        if self._reason.exists():
            return self._reason.read_text("utf-8").strip()
        if self.last_code < 0:
            return f"killed by {signal.Signals(-self.last_code).name}"
        return f"exit code {self.last_code}; its log above may say why"

    def terminate(self) -> None:
        """Ask the process to stop. The second call makes it exit immediately."""
        self.load = None
        if self.process and self.process.poll() is None:
            self.process.terminate()

    def kill(self) -> None:
        if self.process and self.process.poll() is None:
            kill(self.process)

    @property
    def has_ended(self) -> bool:
        return self.process is None or self.process.poll() is not None
