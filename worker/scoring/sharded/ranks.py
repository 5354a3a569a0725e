"""Start, watch and end the ranks of a model that is divided by tensor, other than rank 0.

If a rank dies, the group cannot go on, so `on_lost` is called. No rank outlives rank 0: rank 0 kills the others when it closes,
and on Linux the kernel kills them when it dies, even if they hang. They ignore SIGTERM and SIGINT, which a process group gets
together: rank 0 may still need them for a batch.
"""

import os
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NoReturn

from torch import distributed
from torch.multiprocessing.spawn import ProcessException, spawn

from worker.scoring.main_module import without_main_module
from worker.scoring.quiet import quiet_transformers, quieten_imports


@dataclass(frozen=True, kw_only=True)
class RankTask:
    """Which model the ranks load, and how they meet."""

    model: str
    dtype: str
    revision: str | None
    ranks: int
    device_type: str
    threads: int  # of each rank, on a CPU
    meeting_file: str  # a file that does not exist yet, in a folder that only this user can read


def start_others(task: RankTask, on_lost: Callable[[str], None] | None) -> Callable[[], None]:
    """Start the other ranks, and a thread that calls `on_lost` if one dies. Returns the function that ends them.

    The thread is needed because rank 0 would wait for a dead rank in its next NCCL collective.
    """
    context = _spawned(task)
    is_ending = threading.Event()

    def watch() -> None:
        try:
            context.join(grace_period=0)
        except ProcessException as error:
            if on_lost and not is_ending.is_set():
                on_lost(f"Rank {error.error_index + 1} (process {error.error_pid}) has ended: {error}.")

    def end() -> None:
        is_ending.set()
        for process in context.processes:
            process.kill()
        watching.join()
        if distributed.is_initialized():
            distributed.destroy_process_group()

    watching = threading.Thread(target=watch, name="watch ranks", daemon=True)
    watching.start()
    return end


def _spawned(task: RankTask) -> Any:
    """The kernel kills a rank when the thread that started it ends, so only ranks of a main thread ask for that."""
    parent = os.getpid() if threading.current_thread() is threading.main_thread() else 0
    with without_main_module():
        return spawn(_serve, args=(parent, task), nprocs=task.ranks - 1, join=False)


def _serve(index: int, parent: int, task: RankTask) -> NoReturn:
    """Compute each batch that rank 0 sends. Rank 0 reports a text that transformers cannot handle."""
    from fleet.parent_death import end_with_parent  # only here: the scoring core is imported without the fleet

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    if parent:
        end_with_parent(parent, signal.SIGKILL)
    os.environ["LOCAL_RANK"] = str(index + 1)  # by which transformers chooses the GPU
    quieten_imports()
    from worker.scoring.sharded.tensor import joined

    with quiet_transformers():
        part = joined(task, rank=index + 1)
    while True:
        with suppress(ValueError):
            part.next_output()
