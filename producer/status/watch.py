"""Watch a run until it ends: redraw its status on a terminal, or print occasional lines without one."""

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import redis
from rich.console import Console
from rich.live import Live
from rich.text import Text

from shardsift.fleet.ledger import Ledger
from shardsift.fleet.process.command_line import say
from shardsift.fleet.process.redis_away import as_ours
from shardsift.fleet.process.wording import counted, wrapped
from shardsift.producer.status import RunStatus, run_status
from shardsift.producer.status.advice import troubles, verdict
from shardsift.producer.status.failure_causes import Cause, causes_of, retry_lines
from shardsift.producer.status.screen import status_screen

_POLL_SECONDS = 0.5
_RETRY_SECONDS = 2.0
_AWAY_SECONDS = 30.0
_LINE_SECONDS = 10.0
_GOOD, _ATTENTION, _LABEL = "bold green", "bold yellow", "cyan"


def watch(
    ledger: Ledger,
    run_id: str,
    *,
    on_poll: Callable[[], None] = lambda: None,
    starts_workers: bool = False,
    progress: bool = True,
) -> RunStatus:
    """Show the run on stderr until nothing more will happen by itself.

    `on_poll` is called twice a second; its exceptions propagate. Shows nothing if `progress` is false. If `starts_workers`,
    shows nothing until the caller's workers are there. Raises redis.RedisError if the Redis of this machine does not answer
    for half a minute.
    """

    def read() -> RunStatus:
        return run_status(ledger, run_id)

    def tell(line: str) -> None:
        if progress:
            say(line)

    console = Console(stderr=True, quiet=not progress)
    with shown_on(console) as show:
        while True:
            status = _outlasting(read, on_error=tell, seconds=_AWAY_SECONDS if ledger.is_embedded else math.inf)
            if status.is_over:
                if console.is_jupyter:
                    show(status)  # because the screen stays in the cell
                return status
            if not (starts_workers and (status.is_unserved or status.lacks_finalizer)):  # they are starting
                show(status)
            on_poll()
            time.sleep(_POLL_SECONDS)


def screen_text(status: RunStatus, width: int) -> Text:
    """Colour the screen of `producer status`: the verdict is green if all is well, otherwise yellow."""
    verdict, *lines = (wrapped(line, width) for line in status_screen(status))
    rest = Text("\n".join(lines))
    rest.highlight_regex(r"(?m)^[a-z]+(?= +\S)", _LABEL)
    rest.highlight_regex(r"(?<=progress )█+", _GOOD)
    return Text.assemble(
        (verdict, _GOOD if verdict.startswith("on track") or verdict == "published" else _ATTENTION), "\n", rest
    )


def _outlasting(read: Callable[[], RunStatus], *, on_error: Callable[[str], None], seconds: float) -> RunStatus:
    """Call `read` again until Redis answers. After `seconds`, raise the last error.

    Calls `on_error` at the first failure.
    """
    has_warned, deadline = False, time.monotonic() + seconds
    while True:
        try:
            return read()
        except (redis.ConnectionError, redis.TimeoutError) as error:
            if time.monotonic() > deadline:
                raise
            if not has_warned:
                on_error(f"{as_ours(error)} Waiting for it.")
            has_warned = True
            time.sleep(_RETRY_SECONDS)


@contextmanager
def shown_on(console: Console, *, line_seconds: float = _LINE_SECONDS) -> Iterator[Callable[[RunStatus], None]]:
    """Yield a function that shows a status. In a terminal or notebook, it redraws the screen.

    Elsewhere, it prints a line, at most every `line_seconds` and only if the line has changed, and each cause of retries
    once. It does not list failed shards, because the report at the end of the run does.
    """
    if console.is_jupyter:
        yield _shown_in_notebook(console)
        return
    if console.is_terminal:
        with Live(console=console, auto_refresh=False, transient=True) as screen:
            try:
                yield lambda status: screen.update(screen_text(status, console.width), refresh=True)
                screen.update("")  # otherwise a part of a screen higher than the terminal would stay
            except KeyboardInterrupt:
                screen.transient = False  # keep the last screen
                raise
        return
    next_line, last, shown = 0.0, "", set[Cause]()

    def print_line(status: RunStatus) -> None:
        nonlocal next_line, last
        line = f"{status.counts.done} of {counted(status.counts.shards, 'shard')}, {progress_line(status)}"
        if time.monotonic() >= next_line and line != last:
            new = {cause: retries for cause, retries in causes_of(status.retries).items() if cause not in shown}
            for said in (line, *(why for retries in new.values() for why in retry_lines(retries))):
                console.print(said, markup=False, highlight=False, soft_wrap=True)
            shown.update(new)
            next_line, last = time.monotonic() + line_seconds, line

    yield print_line


def _shown_in_notebook(console: Console) -> Callable[[RunStatus], None]:
    """Return a function that redraws the screen in the output of a notebook cell. Needs no ipywidgets."""
    from IPython.display import display

    cell = None if console.quiet else display(Text(), display_id=True)
    return lambda status: cell.update(screen_text(status, console.width)) if cell else None


def progress_line(status: RunStatus) -> str:
    """Say what the run is doing. If it is not running, return the verdict with the command that helps."""
    said = verdict(status) if status.word != "retrying" else "; ".join([status.word, *troubles(status)])
    if status.word == "publishing" or (status.word != "running" and said != status.word):
        return said
    rows, left = counted(status.counts.rows_scored, "row"), status.time_left
    but = "".join(f"; {what}" for what in troubles(status) if status.counts.open)
    return f"{rows}, {status.rows_per_second:,.0f} rows/s{f'; {left} left' if left else ''}{but}"
