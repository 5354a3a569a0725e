"""Several processes of one worker that train together: ranks, which share the rows of each step.

Rank 0 is the process that calls `train`. It has the watcher, writes checkpoints and model, and the others end with it. They do
what it does, with the rows that it sends them, and stop when it does: see `StopAtNextStep`.
"""

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, NoReturn

import torch
from accelerate.state import AcceleratorState

from fleet.errors import UsageError
from fleet.training.progress import TrainProgress
from fleet.training.spec import FullTraining, TrainSpec
from worker.scoring.sharded.processes import RankProcesses
from worker.scoring.sharded.rank_place import RankPlace
from worker.training.division import Division
from worker.training.full import train_full, training_device
from worker.training.place import TrainPlace
from worker.training.splits import Split
from worker.training.stopped import TrainingStopped
from worker.training.trained import Trained

_GRACE_SECONDS = 30.0  # for rank 0 to meet the error of another rank


def train_in_group(
    spec: TrainSpec,
    full: FullTraining,
    split: Split,
    *,
    place: TrainPlace,
    tell: Callable[[str], None],
    division: Division,
) -> Trained:
    """As `train_full`, in as many processes as the division has. Raises what `train_full` does."""
    device = training_device(place.device)
    with tempfile.TemporaryDirectory(prefix="shardsift-ranks-", dir=place.devices.scratch_dir) as folder:
        rank_place = RankPlace(
            rank=0,
            ranks=division.processes,
            meeting_file=str(Path(folder, "meeting")),
            device_type=device.type,
            threads=max(1, torch.get_num_threads() // division.processes),
        )
        first = TrainRank(
            place=rank_place,
            spec=spec,
            full=full,
            split=split,
            training_place=place.of_other_rank(_Led()),
            division=division,
        )
        with _as_rank(rank_place), _others(first, place.devices.on_lost_rank):
            rank_place.join()
            return train_full(spec, full, split, place=place, tell=tell, division=division)


@dataclass(frozen=True, kw_only=True)
class TrainRank:
    """What a rank is to train, and where it is in its group: a `RankWork`."""

    place: RankPlace
    spec: TrainSpec
    full: FullTraining
    split: Split
    training_place: TrainPlace
    division: Division

    def serve(self, connection: Connection, received: "SimpleQueue[Any]") -> NoReturn:
        """Take part in the training, then wait for rank 0 to end this process.

        An error in the options or the rows is one of rank 0 too, which reports it. If only this rank has it, the group fails.
        """
        os.environ.update(_environment(self.place))
        self.place.join()
        try:
            self._train()
        except UsageError:
            with suppress(Empty):
                received.get(timeout=_GRACE_SECONDS)
            raise
        received.get()
        raise AssertionError("Rank 0 sends one message only.")

    def _train(self) -> None:
        with suppress(TrainingStopped):
            train_full(
                self.spec,
                self.full,
                self.split,
                place=self.training_place,
                tell=lambda line: None,
                division=self.division,
            )


class _Led:
    """The watcher of a rank that rank 0 leads. It lets signals and the lease be a matter of rank 0."""

    wants_stop = False

    def on_progress(self, progress: TrainProgress, rows: int) -> None: ...

    def on_checkpoint(self, step: int) -> None: ...

    def on_sign_of_life(self, doing: str = "") -> None: ...

    def check(self) -> None: ...

    def confirm(self) -> None: ...


@contextmanager
def _as_rank(place: RankPlace) -> Iterator[None]:
    """While the block runs, accelerate finds this process in its group, by the variables that `torchrun` sets."""
    before, threads = dict(os.environ), torch.get_num_threads()
    os.environ.update(_environment(place))
    try:
        yield
    finally:
        AcceleratorState._reset_state(reset_partial_state=True)
        torch.set_num_threads(threads)
        for name in os.environ.keys() - before.keys():
            del os.environ[name]
        os.environ.update(before)


@contextmanager
def _others(first: TrainRank, on_lost: Callable[[str], None] | None) -> Iterator[None]:
    """The other ranks. They and the group end with the block."""
    others = RankProcesses(on_lost)
    try:
        for rank in range(1, first.place.ranks):
            others.start(replace(first, place=replace(first.place, rank=rank)))
        yield
    finally:
        others.end()
        if torch.distributed.is_initialized():
            torch.distributed.destroy_process_group()


def _environment(place: RankPlace) -> dict[str, str]:
    rank, ranks = str(place.rank), str(place.ranks)
    return {
        "RANK": rank,
        "LOCAL_RANK": rank,
        "WORLD_SIZE": ranks,
        "LOCAL_WORLD_SIZE": ranks,
        "OMP_NUM_THREADS": str(place.threads),  # accelerate would choose it by the cores of the machine
    }
