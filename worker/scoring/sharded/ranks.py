"""Rank 0's side of a group: it starts the other ranks as processes of its own, has them compute, watches and ends them.

No rank outlives rank 0. Each ends when the connection to rank 0 closes, and on Linux the kernel kills it when rank 0 dies, even
if it hangs. If a rank dies, the rest of the group cannot go on, so `on_lost` is told and every further batch is a DeviceFault.

Batches go to the ranks over sockets and not by `torch.distributed.broadcast`: a rank may wait for hours for the next shard, and a
collective that waits so long times out.
"""

import os
import pickle
import socket
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection
from typing import Any

import torch

from worker.scoring.errors import DeviceFault
from worker.scoring.sharded.tensor_parallel import Inputs, Part, RankTask, join_and_load

_END_SECONDS = 5.0  # a rank exits at once when its connection closes; after this it is killed


@dataclass(eq=False)
class _Others:
    """The ranks besides rank 0."""

    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)
    connections: list[Connection] = field(default_factory=list)
    lost: str = ""  # why the group cannot go on
    is_ending: bool = False


class Ranks:
    """A group with its model. Each batch is computed by all ranks together; see `__call__`.

    A second group in the same process is not possible before `close`.
    """

    def __init__(self, task: RankTask, *, on_lost: Callable[[str], None] | None = None) -> None:
        """Start the other ranks and load the model in all. `task` is that of rank 0.

        The kernel kills a rank when the thread that started it ends, so only ranks of a main thread ask for that.
        """
        self._others = _Others()
        self._end = weakref.finalize(self, _end, self._others)
        for rank in range(1, task.ranks):
            _start(self._others, replace(task, rank=rank), on_lost)
        try:
            self.part: Part = join_and_load(task)
            self.weight_bytes = [self.part.weight_bytes, *self._answers()]
        except BaseException:
            self.close()
            raise

    def __call__(self, **inputs: Any) -> Any:
        """The model's output for a batch, whose tensors are on the CPU. Raises DeviceFault if the group has failed.

        A ValueError is transformers' answer to a text that it cannot handle, and the same in each rank. After any other error
        the ranks may be at different steps, and would mix up their batches.
        """
        self._send(inputs)
        try:
            output = self.part.run(inputs)
        except ValueError as error:
            if all(self._answers()):
                raise
            raise DeviceFault(f"Only some ranks failed: {error}") from error
        except (RuntimeError, MemoryError) as error:
            tokens = inputs["input_ids"].numel()
            raise DeviceFault(
                f"A batch of {tokens:,} tokens failed in rank 0 of {len(self._others.processes) + 1}"
                f"{f' ({self._others.lost})' if self._others.lost else ''}: {type(error).__name__}. "
                "If memory is short, lower SHARDSIFT_MAX_BATCH_TOKENS."
            ) from error
        if reason := next((answer for answer in self._answers() if answer), None):
            raise DeviceFault(f"Only some ranks failed: {reason}")
        return output

    forward = __call__  # which `Padded` calls for some sizes, because of torch.compile

    @property
    def pids(self) -> list[int]:
        """Of the other ranks."""
        return [process.pid for process in self._others.processes]

    def close(self) -> None:
        """End the other ranks and leave the group. Does nothing if it is closed."""
        self._end()

    def _send(self, inputs: Inputs) -> None:
        message = pickle.dumps(inputs)  # `Connection.send` would share a tensor's memory by a server of its own
        try:
            for connection in self._others.connections:
                connection.send_bytes(message)
        except OSError as error:
            raise DeviceFault(self._others.lost or f"A rank does not answer: {error}") from error

    def _answers(self) -> list[Any]:
        """What each rank says of its last step. Waits as long as they take; a worker's watchdog limits that."""
        try:
            return [connection.recv() for connection in self._others.connections]
        except (EOFError, OSError) as error:
            raise DeviceFault(self._others.lost or "A rank has ended.") from error


def _start(others: _Others, task: RankTask, on_lost: Callable[[str], None] | None) -> None:
    parent = os.getpid() if threading.current_thread() is threading.main_thread() else 0
    ours, theirs = socket.socketpair()
    with theirs:
        process = subprocess.Popen(
            [sys.executable, "-m", "worker.scoring.sharded.rank", str(theirs.fileno()), str(parent)],
            stdin=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
            env={**os.environ, "LOCAL_RANK": str(task.rank)},  # by which transformers chooses the GPU
        )
    connection = Connection(ours.detach())
    others.processes.append(process)
    others.connections.append(connection)
    name = f"watch rank {task.rank}"
    threading.Thread(target=_watch, args=(others, process, task, on_lost), name=name, daemon=True).start()
    with suppress(OSError):  # if it has died, `_watch` says so
        connection.send_bytes(pickle.dumps(task))


def _watch(
    others: _Others, process: subprocess.Popen[bytes], task: RankTask, on_lost: Callable[[str], None] | None
) -> None:
    """Wait for the end of a rank. NCCL would not notice it: rank 0 would wait for the dead rank in its next collective."""
    code = process.wait()
    if others.is_ending or others.lost:
        return
    others.lost = f"Rank {task.rank} of {task.ranks} (process {process.pid}) has ended with exit code {code}."
    if on_lost:
        on_lost(others.lost)


def _end(others: _Others) -> None:
    others.is_ending = True
    for connection in others.connections:
        connection.close()
    for process in others.processes:
        try:
            process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()
