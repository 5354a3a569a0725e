"""Show a training until it ends."""

import time

from rich.console import Console
from rich.live import Live
from rich.text import Text

from fleet.command_line import say
from fleet.ledger import Ledger
from fleet.training.task import FleetTraining
from producer.training.report import training_screen, verdict
from producer.training.status import TrainingStatus, training_status

_LOOK_SECONDS = 0.5
_LINE_SECONDS = 10.0


def watch_training(ledger: Ledger[FleetTraining], training_id: str, *, progress: bool = True) -> TrainingStatus:
    """Block until nothing more will happen by itself. Redraws the screen on a terminal, otherwise prints lines on stderr.

    Without `progress`, prints nothing.
    """
    if not progress:
        return _silently(ledger, training_id)
    console = Console(stderr=True)
    if not console.is_terminal:
        return _with_lines(ledger, training_id)
    with Live(console=console, auto_refresh=False, transient=True) as screen:
        while not (status := training_status(ledger, training_id)).is_over:
            screen.update(Text("\n".join(training_screen(status))), refresh=True)
            time.sleep(_LOOK_SECONDS)
    return status


def _silently(ledger: Ledger[FleetTraining], training_id: str) -> TrainingStatus:
    while not (status := training_status(ledger, training_id)).is_over:
        time.sleep(_LOOK_SECONDS)
    return status


def _with_lines(ledger: Ledger[FleetTraining], training_id: str) -> TrainingStatus:
    next_line, said = 0.0, ""
    while not (status := training_status(ledger, training_id)).is_over:
        line = verdict(status)
        if line != said and time.monotonic() >= next_line:
            say(line)
            next_line, said = time.monotonic() + _LINE_SECONDS, line
        time.sleep(_LOOK_SECONDS)
    return status
