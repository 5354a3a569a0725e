"""A new operator's first look at a fleet in trouble: what is wrong is on the first screen, and what it says to type helps.

A worker is killed, a shard is corrupt, another has rows without text, and no worker serves a second run.
"""

import re
import shlex
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from shardsift.fleet.presence.announcements import list_workers
from shardsift.fleet.process.children import kill
from shardsift.producer.local.demo_data import write_shards
from support.disturbed_runs import frozen_by_order
from support.fleet import Fleet
from support.injected_faults import STAND_IN, InjectedFaults
from support.outputs import manifest_lines
from support.waiting import wait_until

CORRUPT, GONE = "000_00001", "w1"
COMMAND = re.compile(r": ((?:producer|worker) [^\n<]+)")

pytestmark = pytest.mark.slow


@dataclass(frozen=True, kw_only=True)
class Trouble:
    fleet: Fleet
    stack: ExitStack  # what an operator starts
    inputs: Path
    run_id: str
    unserved: str

    def status(self, *arguments: str) -> str:
        return self.fleet.call_producer("status", *arguments).stdout

    def type(self, line: str) -> None:
        """Do what a line of the screen says. A worker goes to the background."""
        found = COMMAND.search(line)
        assert found, line
        name, *arguments = shlex.split(found[1])
        if name == "worker":
            self.stack.enter_context(self.fleet.machine(*arguments[1:], name="typed"))
        else:
            done = self.fleet.call_producer(*arguments)
            assert done.returncode == 0, done.stderr


@pytest.fixture
def trouble(fleet: Fleet, faults: InjectedFaults, tiny_model: Path, tmp_path: Path) -> Iterator[Trouble]:
    faults.use_stand_in(seconds_a_batch=0.3)
    faults.at("shardsift.worker.shard.window_scoring:WindowScoring.fetch", "after", "freeze")
    fleet.environment |= faults.environment | {"SHARDSIFT_LEASE_SECONDS": "24"}
    shards = tmp_path / "shards"
    write_shards(shards, shards=12, rows=12, seed=1)
    spoil(shards)
    arguments = ("--input", shards, "--scorer", STAND_IN, "--model", tiny_model)
    with ExitStack() as stack:
        run_id = fleet.enqueue(*arguments, "--dtype", "float32", "--output", tmp_path / "out")
        unserved = fleet.enqueue(
            *arguments, "--dtype", "bfloat16", "--limit-rows", "12", "--output", tmp_path / "other"
        )
        stack.enter_context(fleet.finalizer())
        float32 = {"SHARDSIFT_DTYPE": "float32"}
        victim = stack.enter_context(fleet.worker(tiny_model, name=GONE, environment=float32))
        with frozen_by_order(victim):
            kill(victim)
        stack.enter_context(fleet.worker(tiny_model, name="w2", environment=float32))
        yield Trouble(fleet=fleet, stack=stack, inputs=shards, run_id=run_id, unserved=unserved)


def spoil(shards: Path) -> None:
    """Truncate one shard, and take the text from half of the rows of another."""
    corrupt = shards / f"{CORRUPT}.parquet"
    corrupt.write_bytes(corrupt.read_bytes()[:-100])
    without_text = shards / "000_00002.parquet"
    table = pq.read_table(without_text)
    texts = [text if row % 2 else None for row, text in enumerate(table["text"].to_pylist())]
    pq.write_table(table.set_column(table.schema.get_field_index("text"), "text", pa.array(texts)), without_text)


def line_with(text: str, screen: str) -> str:
    return next(line for line in screen.splitlines() if text in line)


def test_the_first_screen_says_what_is_wrong_and_what_to_type(trouble: Trouble) -> None:
    run, unserved = trouble.run_id, trouble.unserved
    ledger = trouble.fleet.ledger
    wait_until(
        lambda: ledger.counts(run).failed and run_is_silent(trouble), description="the shard fails, a worker is silent"
    )

    newest, of_run, listed = trouble.status(), trouble.status(run), trouble.fleet.call_producer("runs").stderr

    assert newest.startswith("queued: No worker serves this run. Start one: worker start --model ")
    assert "Workers of this fleet that serve other models or dtypes: 1." in newest
    assert line_with(f"{run} is", listed).startswith(f"{run} is running")
    assert re.match(r"running.*; 1 shard failed; no report on 1 shard for \d+ s$", of_run.splitlines()[0])
    assert "not a readable Parquet file" in line_with(f"Shard {CORRUPT} failed", of_run)
    assert "the attempt counts as a crash" in line_with(f"{GONE}@", of_run.partition("output ")[2])
    assert "producer finalize" not in of_run
    assert f"{unserved} is queued: No worker serves this run" in listed

    trouble.type(newest.splitlines()[0])
    write_shards(trouble.inputs.parent / "again", shards=12, rows=12, seed=1)
    corrupt = trouble.inputs / f"{CORRUPT}.parquet"
    corrupt.write_bytes((trouble.inputs.parent / "again" / corrupt.name).read_bytes())
    trouble.type(line_with("try it again", of_run))
    for each in (run, unserved):
        wait_until(lambda each=each: ledger.state(each).publication, description="it is published", seconds=120)  # type: ignore[misc]

    after = trouble.status(run)
    assert after.startswith("published\n")
    assert "errored  6 null text" in after
    assert len(manifest_lines(trouble.inputs.parent / "out")) == 12


def run_is_silent(trouble: Trouble) -> bool:
    """Return whether a worker is silent, and its announcement has expired."""
    ledger = trouble.fleet.ledger
    return (
        any(shard.is_silent for shard in ledger.running_shards(trouble.run_id)) and len(list_workers(ledger.redis)) == 1
    )
