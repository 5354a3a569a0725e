"""On a terminal a watched run is shown as the status screen, again and again until it is over."""

import os
import pty
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from fleet.finalizers import FinalizerState, announce_finalizer
from fleet.ledger import Publication
from support.fleet import Fleet
from support.ledger_states import claimed
from support.processes import BIN
from support.records import a_receipt, a_shard, a_spec
from support.waiting import wait_until

SPEC, A, B = a_spec(), a_shard("a"), a_shard("b")
RUN = SPEC.run_id


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


@contextmanager
def on_a_terminal(*command: str, environment: dict[str, str]) -> Iterator[Terminal]:
    terminal = Terminal(list(command), environment)
    try:
        yield terminal
    finally:
        terminal.close()


@pytest.mark.parametrize(
    "command",
    [
        (str(BIN / "producer"), "status", "--watch"),
        (sys.executable, "-c", "import shardsift; print(shardsift.status(wait=True))"),  # as `run` and `enqueue --wait`
    ],
    ids=["status --watch", "wait"],
)
def test_the_screen_follows_the_run_and_gives_way_to_its_end(fleet: Fleet, command: tuple[str, ...]) -> None:
    ledger = fleet.ledger
    ledger.create_run(SPEC, [A, B], now=0)
    announce_finalizer(ledger.redis, FinalizerState(name="box/13"))

    with on_a_terminal(*command, environment=fleet.environment) as terminal:
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
