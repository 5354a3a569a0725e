"""A process of the fleet that is restarted when it ends, as in a managed group of virtual machines."""

import os
import signal
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

from fleet.process.children import Child, running

_STOP_SECONDS = 20.0


class Service:
    """One command. Each of its processes leads its own session and process group."""

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
        """Call this in the main thread: the kernel ends a process when the thread that started it ends."""
        self.process = self._running.enter_context(
            running(self._command, log=self.log, stop_seconds=_STOP_SECONDS, environment=self._environment)
        )

    def start_again(self) -> None:
        """Start it again after its process has ended."""
        self._running.close()
        self.start()

    def signal_group(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.pid, number)

    def stop(self) -> None:
        """Stop it with SIGTERM, and with SIGKILL if that takes too long."""
        self._running.close()
