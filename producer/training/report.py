"""The status of a training for people: one line for a list, a screen about one, and what to do next."""

import re
from collections.abc import Iterator, Sequence

from rich.table import Table

from fleet.durations import shown_duration
from fleet.ledger import Failure
from fleet.machines import machine_names
from fleet.training.progress import TrainProgress
from producer.failure_lines import unexpected_traceback
from producer.training.status import WORKER_COMMAND, TrainingStatus

_BAR_WIDTH = 40
_OPTION = re.compile(r"(?<!\S)--[a-z]")


def training_table(statuses: Sequence[TrainingStatus]) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column("training", no_wrap=True)
    table.add_column("state", no_wrap=True)
    for name in ("step", "of", "loss", "held-out loss"):
        table.add_column(name, justify="right")
    for status in statuses:
        progress = status.progress
        steps = (progress.step, progress.planned_steps) if progress else (0, 0)
        losses = (progress.loss, progress.held_out_loss) if progress else (None, None)
        table.add_row(
            status.training_id,
            status.word,
            *(f"{number:,}" if number else "" for number in steps),
            *("" if loss is None else f"{loss:.4f}" for loss in losses),
        )
    return table


def training_screen(status: TrainingStatus) -> list[str]:
    """What `producer status` prints of a training."""
    first = verdict(status)
    facts = [f"{label:<8} {value}" for label, value in facts_of(status)]
    figures = [f"  {name}: {value}" for name, value in status.model.lines] if status.model else []
    further = [line for line in what_next(status) if line not in first]
    return [first, "", *facts, *figures, *_traceback_told(status), *further]


def verdict(status: TrainingStatus) -> str:
    """One line: the state, and how far it is, or what is wrong and the command that helps."""
    said = headline(status)
    if _goes_on(status):
        return said
    return f"{status.word} {said}" if _ended_early(status) else f"{status.word}: {said}" if said else status.word


def headline(status: TrainingStatus) -> str:
    """The same without the state, for a place that shows the state by itself."""
    if _goes_on(status):
        return _progress_line(status)
    if _ended_early(status) and status.progress:
        return f"after {_steps(status.progress)}"
    return next(iter(what_next(status)), "")


def _goes_on(status: TrainingStatus) -> bool:
    return status.word == "running" and not status.hangs


def _ended_early(status: TrainingStatus) -> bool:
    """Whether a person has stopped it after some steps."""
    return status.word in ("paused", "cancelled") and status.progress is not None and status.progress.planned_steps > 0


def _progress_line(status: TrainingStatus) -> str:
    """For example `step 1,240 of 2,000: loss 0.4123, held-out 0.3871; about 12 min left`."""
    progress, left = status.progress, status.seconds_left
    if progress is None or not progress.planned_steps:
        return (progress and progress.doing) or "It has begun."
    return _steps(progress) + (f"; about {shown_duration(left)} left" if left else "")


def _steps(progress: TrainProgress) -> str:
    losses = {"loss": progress.loss, "held-out": progress.held_out_loss}
    told = ", ".join(f"{name} {loss:.4f}" for name, loss in losses.items() if loss is not None)
    return f"step {progress.step:,} of {progress.planned_steps:,}{f': {told}' if told else ''}"


def traceback_of(status: TrainingStatus) -> list[str]:
    """The last lines of an unexpected error's traceback. An error of ours says all in its message."""
    ended_badly = _ended_badly(status)
    return unexpected_traceback(ended_badly) if ended_badly else []


def _ended_badly(status: TrainingStatus) -> Failure | None:
    """The last attempt, if it failed the training, or another one follows."""
    return {"failed": status.failure, "queued": status.retry}.get(status.word)


def _traceback_told(status: TrainingStatus) -> Iterator[str]:
    lines = traceback_of(status)
    if lines:
        yield "The traceback ends with these lines; --json has it whole:"
        yield from (f"    {line}" for line in lines)


def facts_of(status: TrainingStatus) -> Iterator[tuple[str, str]]:
    """What is known, as label and value."""
    spec, progress = status.training.spec, status.progress
    priority = f", priority {status.steering.priority}" if status.steering.priority else ""
    yield "training", f"{status.training_id}{priority}"
    if progress and progress.planned_steps and not status.model:
        done = _BAR_WIDTH * progress.step // progress.planned_steps
        share = f"{100 * progress.step // progress.planned_steps}% of steps"
        yield "progress", f"{'█' * done}{'░' * (_BAR_WIDTH - done)}  {share}"
    yield (
        "model",
        f"{spec.base_model}: {'all weights' if spec.full else 'the last layer'}, from {spec.data_uri or spec.label_with}",
    )
    if status.running:
        yield "worker", _worker(status)
    if status.worker_seconds:
        yield "work", f"{shown_duration(status.worker_seconds)} of all attempts together{_cost(status)}"
    if spec.full and not status.model:
        yield "kept in", _kept_in(status)
    yield "output", spec.output_uri


def _kept_in(status: TrainingStatus) -> str:
    """Where the checkpoints are, and the step of the newest one that another attempt goes on from."""
    newest = status.progress.checkpoint if status.progress else 0
    up_to = f", up to step {newest:,}" if newest else ""
    if status.training.checkpoints_uri:
        return f"{status.training.checkpoints_uri}{up_to}"
    return f"the machine that trains{up_to}: another one would begin again"


def _cost(status: TrainingStatus) -> str:
    """Empty if no device has a list price."""
    known = [one.device_cost for one in status.costs if one.device_cost is not None]
    return f", ${sum(known):,.2f} by list prices" if known else ""


def _worker(status: TrainingStatus) -> str:
    running, progress = status.running, status.progress
    assert running
    device = f" ({running.report.device})" if running.report else ""
    again = f"; attempt {running.attempt}" if running.attempt > 1 else ""
    resumed = f"; went on after step {progress.resumed_from:,}" if progress and progress.resumed_from else ""
    speed = (
        f"; {running.report.rows_per_second:,.0f} rows/s" if running.report and running.report.rows_per_second else ""
    )
    seen = f"; last seen {shown_duration(running.seen_seconds)} ago" if running.is_silent else ""
    return f"{running.worker}{device}{speed}{again}{resumed}{seen}"


def needs_a_person(status: TrainingStatus) -> bool:
    is_bad = status.word in ("failed", "damaged", "half enqueued") or status.hangs
    return is_bad or status.is_unserved or _lacks_finalizer(status)


def what_next(status: TrainingStatus) -> Iterator[str]:
    """What is wrong, what it waits for, and the command that helps."""
    match status.word:
        case "done":
            yield f"The model is at {status.training.spec.output_uri}."
        case "damaged":
            yield f"The model at {status.training.spec.output_uri} is gone. The same `producer train` command trains it again."
        case "failed":
            yield from _on_failure(status)
        case "cancelled":
            yield f"Take it up again: producer retry {status.training_id}"
        case "paused":
            why = f"{status.paused.rstrip('.')}. " if status.paused else ""
            yield f"{why}Resume it: producer resume {status.training_id}"
        case "half enqueued":
            yield "Enqueueing was interrupted. Run the same command again to finish it."
        case "queued":
            yield from _on_queued(status)
        case "loading":
            yield "A worker gets ready to train."
    if status.running and status.running.is_silent:
        left = shown_duration(status.running.lease_seconds_left)
        yield f"Its worker gives no sign of life. The training goes to another one when the lease ends, in {left}."
    elif status.running and status.idle_seconds and status.hangs:
        yield (
            f"No step and no batch of texts for {shown_duration(status.idle_seconds)}. If the log of {status.running.worker} "
            "says nothing either, stop that process: the training goes on after its last checkpoint."
        )
    if _lacks_finalizer(status):
        yield "No finalizer is running: a lost training is not sent again. Start one: producer finalizer"


def _on_failure(status: TrainingStatus) -> Iterator[str]:
    assert status.failure
    yield f"{status.failure.error} (on {status.failure.worker}, attempt {status.failure.attempts})"
    again = "go on after the last checkpoint" if status.progress and status.progress.checkpoint else "try again"
    yield f"When that is mended, {again}: producer retry {status.training_id}"
    if _OPTION.search(status.failure.error):
        yield (
            "With other options it is another training: repeat your `producer train` with them, and give this one up: "
            f"producer cancel {status.training_id}"
        )


def _on_queued(status: TrainingStatus) -> Iterator[str]:
    if status.retry:
        yield f"It waits for another attempt. {status.retry.worker}, attempt {status.retry.attempts}: {status.retry.error}"
    if status.unable and not status.machines:
        reason = next(iter(status.unable[0].avoids.values())).rstrip(".")
        yield f"No worker of {machine_names(status.unable)} could train: {reason}. It is tried again after ten minutes."
    if status.is_unserved:
        yield f"No worker trains. Start one: {WORKER_COMMAND}"
    elif not status.workers:
        free = [machine.name for machine in status.machines if machine.free]
        yield (
            f"{free[0]} starts a worker for it within seconds."
            if free
            else f"The workers of {machine_names(status.machines)} are at runs. One comes when it is free."
        )
    elif all(worker.activity == "busy" for worker in status.workers):
        yield "The workers that train are busy. One takes it when it is free."


def _lacks_finalizer(status: TrainingStatus) -> bool:
    return status.complete and not status.is_over and not status.has_finalizer
