"""On a terminal a watched run is shown as the status screen, again and again until it is over; elsewhere as lines."""

import io
import os
import pty
import signal
import subprocess
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest
from rich.console import Console

from shardsift.fleet.ledger import Publication
from shardsift.fleet.presence.announcements import FinalizerState, announce_finalizer
from shardsift.producer.status.watch import shown_on
from support.fleet import Fleet
from support.ledger_states import claimed
from support.processes import BIN, started
from support.records import a_receipt
from support.redis_servers import moved, redis_server
from support.waiting import wait_until
from support.watched_run import SPEC, A, B, WatchedRun, clocked_ledger

RUN = SPEC.run_id
_ERASE_LINE = "\x1b[2K"


class Terminal:
    """A program on a terminal of 120 columns, and what it has written there."""

    def __init__(self, command: list[str], environment: dict[str, str]) -> None:
        self._own, others = pty.openpty()
        terminal = {"TERM": "xterm-256color", "COLUMNS": "120", "LINES": "40"}
        self.process = subprocess.Popen(
            command, stdin=others, stdout=others, stderr=others, env={**os.environ, **environment, **terminal}
        )
        os.close(others)
        os.set_blocking(self._own, False)
        self._written = b""

    def written(self) -> str:
        try:
            while more := os.read(self._own, 65536):
                self._written += more
        except OSError:  # nothing more now, or never
            pass
        return self._written.decode()

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._own)


def test_the_screen_follows_the_run_and_gives_way_to_its_end(fleet: Fleet) -> None:
    command, ledger = [str(BIN / "producer"), "status", "--watch"], fleet.ledger
    ledger.create_run(SPEC, [A, B], now=0)
    announce_finalizer(ledger.redis, FinalizerState(name="box/13"))

    with closing(Terminal(command, fleet.environment)) as terminal:
        wait_until(lambda: "0% of shards done" in terminal.written(), description="the screen shows the new run")
        ledger.complete(claimed(ledger, RUN, A), a_receipt(RUN, A))
        wait_until(lambda: "50% of shards done" in terminal.written(), description="it shows the first shard")
        ledger.complete(claimed(ledger, RUN, B), a_receipt(RUN, B))
        ledger.record_publication(RUN, Publication(uri="memory://out", commit="", shards=2))
        terminal.process.wait(timeout=30)

        shown = terminal.written()
        assert "No worker serves this run. Start one: worker start" in shown
        assert "█" * 20 in shown
        assert "░" * 20 in shown
        assert "2 of 2 done" in shown[shown.rindex("\x1b[2K") :]  # below the last screen, which is erased


def test_without_a_terminal_it_says_the_verdict_with_its_command_once_and_ctrl_c_leaves_the_run(
    fleet: Fleet, tmp_path: Path
) -> None:
    log, ledger = tmp_path / "log", fleet.ledger
    ledger.create_run(SPEC, [A, B], now=0)

    with started("producer", "status", "--watch", environment=fleet.environment, log=log) as waiting:
        wait_until(lambda: "0 of 2 shards, queued: No worker" in log.read_text(), description="the verdict is there")
        waiting.send_signal(signal.SIGINT)
        waiting.wait(timeout=30)

    assert log.read_text().count("Start one: worker start --model ") == 1
    assert waiting.returncode == 130
    assert not ledger.state(RUN).cancelled


@pytest.fixture
def run(redis_url: str) -> Iterator[WatchedRun]:
    with clocked_ledger(redis_url) as ledger:
        yield WatchedRun(ledger)


def test_a_line_is_written_again_only_if_it_has_changed_and_why_shards_are_tried_again_once(run: WatchedRun) -> None:
    run.add_shards("c")
    run.try_later(A.name, "The Hub answered 500 after 3 s.")
    run.fail(B.name, "It is empty.")
    run.passes(1)
    said = io.StringIO()
    with shown_on(Console(file=said, width=40), line_seconds=0) as show:
        for _ in range(3):
            show(run.status())
        run.try_later("c", "The Hub answered 500 after 4 s.")
        run.worker()
        show(run.status())
        run.ledger.pause(RUN)
        show(run.status())

    stalled, again, retrying, paused = said.getvalue().splitlines()
    assert stalled.startswith("0 of 3 shards, stalled: No worker serves this run. Start one: worker start")
    assert again.endswith("The Hub answered 500 after 3 s.")
    assert retrying == (
        "0 of 3 shards, retrying; 1 shard failed; 2 shards to try again; 2 attempts failed, and no shard is done yet"
    )
    assert paused.startswith("0 of 3 shards, paused: ")


def test_a_screen_higher_than_the_terminal_leaves_no_part_of_it_behind(run: WatchedRun) -> None:
    shown = io.StringIO()
    with shown_on(Console(file=shown, force_terminal=True, width=80, height=6)) as show:
        show(run.status())
        before = len(shown.getvalue())

    assert "No worker serves this run" in shown.getvalue()
    assert RUN not in shown.getvalue()[before:]


def test_on_a_terminal_ctrl_c_leaves_what_is_done_on_the_screen(run: WatchedRun) -> None:
    shown = io.StringIO()

    with suppress(KeyboardInterrupt), shown_on(Console(file=shown, width=99, force_terminal=True)) as show:
        show(run.status())
        raise KeyboardInterrupt

    assert "0 of 2 done" in shown.getvalue()
    assert _ERASE_LINE not in shown.getvalue().rpartition("0 of 2 done")[2]


def test_who_watches_waits_for_a_redis_that_goes_away_and_is_told_so_once(fleet: Fleet, tmp_path: Path) -> None:
    log = tmp_path / "log"
    with redis_server(tmp_path / "own-redis") as server:
        fleet = moved(fleet, server.url)
        fleet.ledger.create_run(SPEC, [A, B], now=0)
        with started("producer", "status", "--watch", environment=fleet.environment, log=log) as waiting:
            wait_until(lambda: "0 of 2 shards" in log.read_text(), description="it waits for the run")
            server.kill()
            wait_until(lambda: "Waiting for it" in log.read_text(), description="it says that Redis is away")
            server.start()
            fleet.ledger.cancel(RUN)

            assert waiting.wait(timeout=30) == 4

    assert log.read_text().count("Redis does not answer") == 1
