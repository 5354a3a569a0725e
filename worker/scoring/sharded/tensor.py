"""Divide a model by tensor: each device has a part of every matrix and its own process, a rank of `torch.distributed`.

Rank 0 is the process that loads the scorer. The others wait in a broadcast for the next batch. Each computes its share
of every batch, and gets the whole result. All must take the same steps, because each step waits for all.

If a rank dies, the group cannot continue, so `on_lost_rank` is called. No rank outlives rank 0: it kills the others
when it closes, and on Linux the kernel kills them when it dies, even if they hang. They ignore SIGTERM and SIGINT,
which the whole process group receives, because rank 0 may still need them for a batch.
"""

import os
import signal
import sys
import tempfile
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from multiprocessing.util import Finalize
from pathlib import Path
from typing import Any, NoReturn

import torch
from torch import distributed
from torch.multiprocessing.spawn import ProcessException, spawn

from shardsift.worker.scoring import DeviceFault
from shardsift.worker.scoring.backends.padded import padded
from shardsift.worker.scoring.device import keep_heads_in_float32
from shardsift.worker.scoring.quiet import quiet_transformers, quieten_imports
from shardsift.worker.scoring.saved_model import SavedModel, saved_model
from shardsift.worker.scoring.sharded import Sharded, Sharding

_STEP_LIMIT = timedelta(hours=2)  # longer than any load; a worker's watchdog ends a rank that hangs much earlier
_IDLE_LIMIT = timedelta(days=20)  # after this time without a batch, a worker restarts its processes


def load_by_tensor(
    model: str, dtype: str, revision: str | None, sharding: Sharding, device: torch.device
) -> tuple[SavedModel, Sharded]:
    with tempfile.TemporaryDirectory(prefix="shardsift-ranks-", dir=sharding.scratch_dir) as folder:
        group = _Group(
            model=model,
            dtype=dtype,
            revision=revision,
            ranks=sharding.devices,
            device_type=device.type,
            threads=max(1, torch.get_num_threads() // sharding.devices),
            meeting_file=str(Path(folder, "meeting")),
        )
        divided = _Divided(group, sharding.on_lost_rank)
    saved = divided.part.saved
    batches = padded(saved.model, saved.tokenizer, torch.device("cpu"), run=divided)
    return saved, Sharded(padded=batches, division=f"tensor parallel over {sharding.devices}", close=divided.close)


class _Divided:
    """A model that is divided over processes (ranks), called in rank 0. A process can have only one at a time."""

    def __init__(self, group: "_Group", on_lost: Callable[[str], None] | None) -> None:
        end_others = _start_others(group, on_lost)
        self.close = Finalize(self, end_others, exitpriority=1)  # multiprocessing would wait for the ranks at exit
        try:
            self.part = _Part(group, rank=0)
        except BaseException:
            self.close()
            raise

    def __call__(self, **inputs: Any) -> Any:
        """Compute the model's output for a batch of tensors on the CPU.

        Raises ValueError if transformers cannot handle a text. Every rank raises it, so the ranks can go on. Raises
        DeviceFault for a RuntimeError or MemoryError, because the ranks may then be at different steps and mix up their
        batches.
        """
        try:
            return self.part.next_output(inputs)
        except (RuntimeError, MemoryError) as error:
            raise DeviceFault(
                f"A batch of {inputs['input_ids'].numel():,} tokens failed in rank 0: {type(error).__name__}. A rank has ended, "
                "or memory is short: then lower SHARDSIFT_MAX_BATCH_TOKENS."
            ) from error

    forward = __call__  # `Padded` calls it for some sizes, because of torch.compile


@dataclass(frozen=True, kw_only=True)
class _Group:
    model: str
    dtype: str
    revision: str | None
    ranks: int
    device_type: str
    threads: int  # per rank, on a CPU
    meeting_file: str  # must not exist yet; its folder is private to this user


class _Part:
    def __init__(self, group: _Group, *, rank: int) -> None:
        """Connect to the other ranks, and load this rank's part of the model. Returns when all ranks have loaded theirs.

        Raises ModelError as `saved_model` does.
        """
        from transformers.distributed.configuration_utils import DistributedConfig

        self.device = _prepared_device(group, rank)
        is_cuda = self.device.type == "cuda"
        distributed.init_process_group(
            "nccl" if is_cuda else "gloo",
            init_method=f"file://{group.meeting_file}",
            rank=rank,
            world_size=group.ranks,
            device_id=self.device if is_cuda else None,
            timeout=_STEP_LIMIT,
        )
        self._batches = distributed.new_group(backend="gloo", timeout=_IDLE_LIMIT)
        dtype, divided = getattr(torch, group.dtype), DistributedConfig(tp_size=group.ranks)
        self.saved = saved_model(group.model, group.revision, dtype=dtype, distributed_config=divided)
        keep_heads_in_float32(self.saved.model)
        distributed.barrier(self._batches)

    @torch.inference_mode()
    def next_output(self, batch: dict[str, Any] | None = None) -> Any:
        """Compute the whole model's output for the next batch.

        Rank 0 passes `batch`, and sends it to the other ranks through the CPUs. The others pass None.
        """
        sent = [batch]
        distributed.broadcast_object_list(sent, src=0, group=self._batches)
        inputs = sent[0] or {}
        here = {name: value.to(self.device) if torch.is_tensor(value) else value for name, value in inputs.items()}
        return self.saved.model(**here)


def _prepared_device(group: _Group, rank: int) -> torch.device:
    """Choose the device of a rank. Also limits Gloo, which connects the processes, to this machine."""
    if sys.platform == "linux":
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    if group.device_type != "cuda":
        torch.set_num_threads(group.threads)
        return torch.device(group.device_type)
    torch.cuda.set_device(rank)
    return torch.device("cuda", rank)


def _start_others(group: _Group, on_lost: Callable[[str], None] | None) -> Callable[[], None]:
    """Start the other ranks, and a thread that calls `on_lost` if a rank dies. Returns a function that ends the ranks.

    Without the thread, rank 0 would wait without limit for a dead rank in its next NCCL collective. `end_with_parent`
    ends a rank when the thread that started it ends, so it is used only if this is the main thread.
    """
    parent = os.getpid() if threading.current_thread() is threading.main_thread() else 0
    from shardsift.fleet.process.children import (
        without_main_module,  # only here: the scoring core is imported without the fleet
    )

    with without_main_module():
        context: Any = spawn(_serve, args=(parent, group), nprocs=group.ranks - 1, join=False)
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


def _serve(index: int, parent: int, group: _Group) -> NoReturn:
    """Compute this rank's part of each batch that rank 0 sends. Ignores ValueErrors, because rank 0 raises them, too."""
    from shardsift.fleet.process.children import end_with_parent

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    if parent:
        end_with_parent(parent, signal.SIGKILL)
    os.environ["LOCAL_RANK"] = str(index + 1)  # transformers chooses the GPU by it
    quieten_imports()

    with quiet_transformers():
        part = _Part(group, rank=index + 1)
    while True:
        with suppress(ValueError):
            part.next_output()
