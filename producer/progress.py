"""Watch a run until it ends: with a progress bar, with its whole status, or with occasional lines without a terminal."""

import time
from collections.abc import Callable

import redis
from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.text import Text

from fleet.command_line import say
from fleet.counted import counted
from fleet.ledger import Ledger
from producer.status import RunStatus, run_status
from producer.status_report import loading_line, time_left

_LOOK_SECONDS = 0.5
_REDRAW_SECONDS = 2.0
_LINE_SECONDS = 10.0


def watch(ledger: Ledger, run_id: str, *, on_look: Callable[[], None], progress: bool = True) -> RunStatus:
    """Block until nothing more will happen by itself. `on_look` is called twice a second; its exceptions propagate.

    Without `progress` nothing is printed. Raises redis.RedisError if Redis does not answer.
    """
    console = Console(stderr=True, quiet=not progress)
    with Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("shards"),
        TimeElapsedColumn(),
        TextColumn("{task.fields[rows]}"),
        console=console,
        disable=not console.is_terminal,
    ) as shown:
        bar = shown.add_task(run_id, total=None, rows="")
        next_line = 0.0
        while True:
            status = run_status(ledger, run_id)
            shown.update(bar, total=status.counts.shards, completed=status.counts.done, rows=progress_line(status))
            if status.is_over:
                return status
            if not console.is_terminal and time.monotonic() >= next_line:
                console.print(
                    f"{status.counts.done} of {counted(status.counts.shards, 'shard')}, {progress_line(status)}",
                    highlight=False,
                )
                next_line = time.monotonic() + _LINE_SECONDS
            on_look()
            time.sleep(_LOOK_SECONDS)


def redraw(
    ledger: Ledger, run_id: str, *, is_of_this_machine: bool, price_per_gpu_hour: float | None = None
) -> RunStatus:
    """Show the status on stdout, redrawn every two seconds, until nothing more will happen by itself.

    If stdout is not a terminal, print occasional lines on stderr instead.
    """
    console = Console()
    if not console.is_terminal:
        return _outlasting(lambda: watch(ledger, run_id, on_look=lambda: None), on_error=say)

    def look() -> RunStatus:
        return run_status(ledger, run_id, is_of_this_machine=is_of_this_machine, price_per_gpu_hour=price_per_gpu_hour)

    def below(line: str) -> None:
        screen.update(Group(screen.get_renderable(), Text(f"\n{line}")), refresh=True)

    with Live(console=console, auto_refresh=False, transient=True) as screen:
        while True:
            status = _outlasting(look, on_error=below)
            if status.is_over:
                return status
            screen.update(Text(str(status)), refresh=True)
            time.sleep(_REDRAW_SECONDS)


def _outlasting(look: Callable[[], RunStatus], *, on_error: Callable[[str], None]) -> RunStatus:
    """What `look` returns, as soon as Redis answers. `on_error` is told once if it does not."""
    is_told = False
    while True:
        try:
            return look()
        except (redis.ConnectionError, redis.TimeoutError) as error:
            if not is_told:
                on_error(f"Redis does not answer ({' '.join(str(error).split())}). Waiting for it.")
            is_told = True
            time.sleep(_REDRAW_SECONDS)


def progress_line(status: RunStatus) -> str:
    """A short description of what the run is doing."""
    match status.word:
        case "publishing" if status.publish_error:
            return f"publishing, not yet: {status.publish_error}"
        case "publishing":
            return "publishing"
        case "paused":
            return f"{counted(status.counts.rows_scored, 'row')}; paused"
        case "loading":
            return loading_line(status)
        case "queued" | "stopped":
            return "Waiting for a worker"
        case "stalled":
            waits_for = "no progress" if status.workers else "waiting for a worker"
            return f"{counted(status.counts.rows_scored, 'row')}; {waits_for}"
        case _:
            rows, left = counted(status.counts.rows_scored, "row"), time_left(status)
            return f"{rows}, {status.rows_per_second:,.0f} rows/s{f'; {left} left' if left else ''}"
