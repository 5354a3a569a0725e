"""Rank 0's side of a group that computes a divided model: it has the other ranks compute each batch together with itself.

If a rank dies, every further batch is a DeviceFault.

Batches go to the ranks over sockets and not by `torch.distributed.broadcast`: a rank may wait for hours for the next shard, and a
collective that waits so long times out.
"""

import weakref
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from worker.scoring.errors import DeviceFault
from worker.scoring.sharded.processes import RankProcesses
from worker.scoring.sharded.tensor_parallel import Inputs, Part, RankTask, join_and_load


class Ranks:
    """A group with its model. Each batch is computed by all ranks together; see `__call__`.

    A second group in the same process is not possible before `close`.
    """

    def __init__(self, task: RankTask, *, on_lost: Callable[[str], None] | None = None) -> None:
        """Start the other ranks and load the model in all. `task` is that of rank 0."""
        self._others = RankProcesses(on_lost)
        self._end = weakref.finalize(self, _end, self._others)
        for rank in range(1, task.place.ranks):
            self._others.start(replace(task, place=replace(task.place, rank=rank)))
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
                f"A batch of {tokens:,} tokens failed in rank 0 of {len(self.pids) + 1}"
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
        return self._others.pids

    def close(self) -> None:
        """End the other ranks and leave the group. Does nothing if it is closed."""
        self._end()

    def _send(self, inputs: Inputs) -> None:
        try:
            self._others.send(inputs)
        except OSError as error:
            raise DeviceFault(self._others.lost or f"A rank does not answer: {error}") from error

    def _answers(self) -> list[Any]:
        """What each rank says of its last step. Waits as long as they take; a worker's watchdog limits that."""
        try:
            return self._others.answers()
        except (EOFError, OSError) as error:
            raise DeviceFault(self._others.lost or "A rank has ended.") from error


def _end(others: RankProcesses) -> None:
    others.end()
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()
