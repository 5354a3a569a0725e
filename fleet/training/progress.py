"""How far a training is: what a worker reports while it trains, and what is drawn of it later."""

from collections.abc import Sequence
from dataclasses import dataclass

from pydantic import TypeAdapter, ValidationError

_MOST_POINTS = 40  # of a curve in a report, which is sent every few seconds


@dataclass(frozen=True, kw_only=True)
class LossPoint:
    """The losses after a step; None if one was not measured then. `held_out_loss` is that of the held-out rows."""

    step: int
    loss: float | None = None
    held_out_loss: float | None = None


@dataclass(frozen=True, kw_only=True)
class TrainProgress:
    """`checkpoint` is the step of the newest one that another attempt can go on from.

    `doing` is what the worker does while no step is taken, such as `12,000 texts of 40,000 embedded`."""

    step: int = 0
    planned_steps: int = 0  # 0 before they are known, and if only the last layer is fitted
    resumed_from: int | None = None  # the step of the checkpoint that this attempt began with
    checkpoint: int = 0
    losses: tuple[LossPoint, ...] = ()
    doing: str = ""

    @property
    def loss(self) -> float | None:
        return next((point.loss for point in reversed(self.losses) if point.loss is not None), None)

    @property
    def held_out_loss(self) -> float | None:
        return next((point.held_out_loss for point in reversed(self.losses) if point.held_out_loss is not None), None)

    def to_json(self) -> bytes:
        return _PROGRESS.dump_json(self)

    @staticmethod
    def from_json(content: str | bytes | None) -> "TrainProgress | None":
        """None if there is none, or one of another version."""
        try:
            return _PROGRESS.validate_json(content) if content else None
        except ValidationError:
            return None


_PROGRESS = TypeAdapter(TrainProgress)


def thinned(points: Sequence[LossPoint]) -> tuple[LossPoint, ...]:
    """At most 40 points, evenly spread, of which the last two stay."""
    if len(points) <= _MOST_POINTS:
        return tuple(points)
    body, kept = points[:-2], _MOST_POINTS - 2
    return (*(body[place * len(body) // kept] for place in range(kept)), *points[-2:])
