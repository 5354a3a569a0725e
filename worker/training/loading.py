"""How processes prepare batches beside a training: `--loader-processes`."""

import multiprocessing
from typing import Any

_CONTEXT = "forkserver"
_IMPORTED_ONCE = ["worker.training.loader_imports"]


def loading_arguments(processes: int) -> dict[str, Any]:
    """For transformers' TrainingArguments.

    The training has threads, and a process forked from one with threads inherits the locks that they hold. So the processes are
    forked from a server without threads, which has imported what they need.
    """
    if not processes:
        return {"dataloader_num_workers": 0}
    multiprocessing.get_context(_CONTEXT).set_forkserver_preload(_IMPORTED_ONCE)
    return {
        "dataloader_num_workers": processes,
        "dataloader_multiprocessing_context": _CONTEXT,
    }
