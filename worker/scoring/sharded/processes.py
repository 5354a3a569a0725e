"""The other ranks of a group, as processes that rank 0 starts, watches and ends. Knows not what they compute.

No rank outlives rank 0. Each ends when the connection to rank 0 closes, and on Linux the kernel kills it when rank 0 dies, even
if it hangs. If a rank dies, the rest of the group cannot go on, so `on_lost` is told.
"""

import os
import pickle
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from queue import SimpleQueue
from typing import Any, NoReturn, Protocol

from worker.scoring.sharded.rank_place import RankPlace

_END_SECONDS = 5.0  # a rank exits at once when its connection closes; after this it is killed


class RankWork(Protocol):
    """What a rank does: the first message that it gets. Must be possible to pickle."""

    @property
    def place(self) -> RankPlace: ...

    def serve(self, connection: Connection, received: "SimpleQueue[Any]") -> NoReturn:
        """Called in the main thread of the rank. `received` has the later messages; the process ends with the connection."""


@dataclass(eq=False)
class RankProcesses:
    """`on_lost` is called once in a thread, with the reason."""

    on_lost: Callable[[str], None] | None = None
    lost: str = ""  # why the group cannot go on
    _processes: list[subprocess.Popen[bytes]] = field(default_factory=list)
    _connections: list[Connection] = field(default_factory=list)
    _is_ending: bool = False

    def start(self, work: RankWork) -> None:
        """Start a rank that does this.

        The kernel kills a rank when the thread that started it ends, so only ranks of a main thread ask for that.
        """
        parent = os.getpid() if threading.current_thread() is threading.main_thread() else 0
        ours, theirs = socket.socketpair()
        with theirs:
            process = subprocess.Popen(
                [sys.executable, "-m", "worker.scoring.sharded.rank", str(theirs.fileno()), str(parent)],
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                env={**os.environ, "LOCAL_RANK": str(work.place.rank)},  # by which transformers chooses the GPU
            )
        connection = Connection(ours.detach())
        self._processes.append(process)
        self._connections.append(connection)
        name = f"watch rank {work.place.rank}"
        threading.Thread(target=self._watch, args=(process, work.place), name=name, daemon=True).start()
        with suppress(OSError):  # if it has died, `_watch` says so
            connection.send_bytes(pickle.dumps(work))

    @property
    def pids(self) -> list[int]:
        return [process.pid for process in self._processes]

    def send(self, message: Any) -> None:
        """Send the same to each rank. Raises OSError if one is gone."""
        pickled = pickle.dumps(message)  # `Connection.send` would share a tensor's memory by a server of its own
        for connection in self._connections:
            connection.send_bytes(pickled)

    def answers(self) -> list[Any]:
        """The next answer of each rank. Waits as long as they take. Raises EOFError or OSError if one is gone."""
        return [connection.recv() for connection in self._connections]

    def end(self) -> None:
        """End the ranks. Does nothing if they have ended."""
        self._is_ending = True
        for connection in self._connections:
            connection.close()
        for process in self._processes:
            try:
                process.wait(_END_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _watch(self, process: subprocess.Popen[bytes], place: RankPlace) -> None:
        """Wait for the end of a rank. NCCL would not notice it: rank 0 would wait for the dead rank in its next collective."""
        code = process.wait()
        if self._is_ending or self.lost:
            return
        self.lost = f"Rank {place.rank} of {place.ranks} (process {process.pid}) has ended with exit code {code}."
        if self.on_lost:
            self.on_lost(self.lost)
