"""Stop training at the next step, with a checkpoint, when SIGTERM or Ctrl-C arrives."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import torch
import torch.distributed as dist
from transformers import TrainerCallback


class StopAtNextStep(TrainerCallback):
    """The first signal saves a checkpoint at the next step and ends training; the second ends the process at once."""

    def __init__(self) -> None:
        self.asked = False

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Only the main thread can handle signals; in another one, this does nothing."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self._note) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _note(self, number: int, _frame: FrameType | None) -> None:
        self.asked = True
        signal.signal(number, signal.SIG_DFL)

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if args.world_size > 1:
            self.asked = self._asked_anywhere(args.device)
        if self.asked:
            control.should_save = control.should_training_stop = True

    def _asked_anywhere(self, device: torch.device) -> bool:
        """A signal may reach the processes at different steps, and they must leave the loop together."""
        asked = torch.tensor(int(self.asked), device=device)
        dist.all_reduce(asked, dist.ReduceOp.MAX)
        return bool(asked.item())
