"""Who watches a training: is told how far it is, and may end it. On a fleet that is what holds the lease."""

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from transformers import TrainerCallback

from fleet.training.progress import LossPoint, TrainProgress, thinned


class Watcher(Protocol):
    """A training calls this after each step and each batch of held-out rows, from its own thread."""

    def on_progress(self, progress: TrainProgress, rows: int) -> None:
        """Note how far it is. `rows` were trained on so far; a row counts again in each epoch."""

    def on_checkpoint(self, step: int) -> None:
        """Note that another attempt can go on from a checkpoint of this step."""

    def on_sign_of_life(self, doing: str = "") -> None:
        """It goes on, without a step. `doing` says with what, if that is new."""

    @property
    def wants_stop(self) -> bool:
        """Whether to save a checkpoint and end at this step."""

    def check(self) -> None:
        """Raises LeaseLost if nothing may be written any more, as far as is known."""

    def confirm(self) -> None:
        """As `check`, after asking now. Before the model is made visible."""


class Watched(TrainerCallback):
    """Tells a watcher what transformers' Trainer does."""

    def __init__(self, watcher: Watcher, *, rows_per_step: int, first_step: int) -> None:
        self._watcher, self._rows_per_step, self._first_step = watcher, rows_per_step, first_step

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._tell(state)

    def on_log(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._tell(state)

    def on_substep_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._watcher.on_sign_of_life()

    def on_prediction_step(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._watcher.on_sign_of_life()
        self._watcher.check()

    def _tell(self, state: Any) -> None:
        progress = TrainProgress(
            step=state.global_step,
            planned_steps=state.max_steps,
            resumed_from=self._first_step or None,
            losses=thinned(loss_points(state.log_history)),
        )
        self._watcher.on_progress(progress, rows=state.global_step * self._rows_per_step)


def loss_points(history: Iterable[Mapping[str, Any]]) -> list[LossPoint]:
    """The losses of transformers' log, whose entries have one each. Those of a step become one point."""
    points: dict[int, LossPoint] = {}
    for entry in history:
        step = int(entry["step"])
        before = points.get(step, LossPoint(step=step))
        points[step] = LossPoint(
            step=step,
            loss=entry.get("loss", before.loss),
            held_out_loss=entry.get("eval_loss", before.held_out_loss),
        )
    return [point for point in points.values() if point.loss is not None or point.held_out_loss is not None]
