"""What the Runs page shows of trainings, as JSON: a row for each, and of one its status with the curve of its losses."""

from dataclasses import asdict
from itertools import islice

from fleet.durations import shown_duration
from fleet.ledger import Ledger
from fleet.training.task import FleetTraining
from producer.status import Present
from producer.training.report import facts_of, headline, needs_a_person, traceback_of, verdict, what_next
from producer.training.several import training_statuses
from producer.training.status import TrainingStatus, training_status

_MOST_TRAININGS = 50
_BAD, _DOUBTFUL = {"failed", "damaged"}, {"half enqueued", "paused", "cancelled"}


def trainings_list(ledger: Ledger[FleetTraining], present: Present) -> list[dict[str, object]]:
    """The newest trainings. Raises redis.RedisError."""
    return [_row(status) for status in islice(training_statuses(ledger, present), _MOST_TRAININGS)]


def training_look(ledger: Ledger[FleetTraining], training_id: str) -> dict[str, object]:
    """Raises UsageError for an unknown training, NewerVersion for one that cannot be read, and redis.RedisError."""
    status = training_status(ledger, training_id, looks=False)
    progress = status.progress
    return {
        **_row(status),
        "next": [line for line in what_next(status) if line not in verdict(status)],
        "traceback": "\n".join(traceback_of(status)),
        "lines": [*facts_of(status), *(status.model.lines if status.model else ())],
        "losses": [asdict(point) for point in progress.losses] if progress else [],
    }


def _row(status: TrainingStatus) -> dict[str, object]:
    progress, left = status.progress, status.seconds_left
    return {
        "run_id": status.training_id,
        "state": status.word,
        "level": _level(status),
        "headline": headline(status),
        "why": next(iter(what_next(status)), None) if needs_a_person(status) else None,
        "step": progress.step if progress else 0,
        "planned_steps": progress.planned_steps if progress else 0,
        "loss": progress.loss if progress else None,
        "held_out_loss": progress.held_out_loss if progress else None,
        "time_left": shown_duration(left) if left else None,
    }


def _level(status: TrainingStatus) -> str:
    if status.word in _BAD:
        return "bad"
    return "doubtful" if status.word in _DOUBTFUL or needs_a_person(status) else "good"
