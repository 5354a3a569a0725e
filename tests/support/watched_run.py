"""A run on a clock that stands still, so that all that is shown of it can be compared with a golden file."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from shardsift.fleet.ledger import Claim, Ledger
from shardsift.fleet.presence.announcements import (
    FinalizerState,
    MachineState,
    WorkerState,
    announce,
    announce_finalizer,
    announce_machine,
    withdraw_finalizer,
)
from shardsift.fleet.presence.demand import Wanted
from shardsift.fleet.process.settings import Settings
from shardsift.fleet.run.receipt import AttemptReport, Histogram
from shardsift.fleet.run.spec import RunSpec
from shardsift.producer.status import RunStatus, run_status
from shardsift.producer.status.advice import level, verdict
from shardsift.producer.status.watch import progress_line, screen_text
from support.ledger_machine import CLOCK, START, ClockedRedis
from support.ledger_states import claimed
from support.records import a_receipt, a_shard, a_spec, a_worker

SPEC = a_spec()
A, B, C, D = (a_shard(f"crawl/{name}") for name in "abcd")
REPORT = AttemptReport(
    device="cpu",
    rows_per_second=117.6,
    rows_written=4,
    rows_kept=3,
    tokens=900,
    seconds={"device": 4.5, "input": 0.5, "write": 0.02},
    histograms={"score": Histogram(bins_per_unit=4, rows_by_bin={0: 1, 12: 3})},
)
FINALIZER = FinalizerState(name="box/13")
MACHINE = MachineState(name="box/12", devices=("0", "1"), free=1, wanted=Wanted())
ANNOUNCED = ("workers", "machines", "unable", "finalizers")
WIDTH = 80


@contextmanager
def clocked_ledger(redis_url: str) -> Iterator[Ledger]:
    with ClockedRedis.from_url(redis_url, decode_responses=True) as client:
        client.flushall()
        client.set(CLOCK, START)
        yield Ledger(client, Settings())


class WatchedRun:
    """A run of the shards A and B with a finalizer. Methods change it, and `show` records its status."""

    def __init__(self, ledger: Ledger, spec: RunSpec = SPEC) -> None:
        self.ledger, self.spec, self.run_id = ledger, spec, spec.run_id
        self.shown: list[str] = []
        ledger.create_run(spec, [A, B], now=START / 1000)
        announce_finalizer(ledger.redis, FINALIZER)
        self._when_new = self.status().as_json()

    def add_shards(self, *names: str) -> None:
        self.ledger.create_run(self.spec, [A, B, *map(a_shard, names)], now=START / 1000)

    def passes(self, seconds: float) -> None:
        self.ledger.redis.incrby(CLOCK, round(1000 * seconds))

    def claim(self, name: str = A.name, *, owner: str = "w1@host/7") -> Claim:
        self.ledger.redis.zadd(f"shardsift:run:{self.run_id}:waiting", {name: 1}, xx=True)  # its back-off is over
        return claimed(self.ledger, self.run_id, a_shard(name), owner=owner)

    def finish(self, *names: str, **counts: Any) -> None:
        for name in names:
            self.ledger.complete(self.claim(name), a_receipt(self.run_id, a_shard(name), **counts))

    def fail(self, name: str, error: str = "no column text.") -> None:
        self.ledger.fail(self.claim(name), error, "")

    def try_later(self, name: str, error: str) -> None:
        self.ledger.retry_later(self.claim(name), error, "")

    def worker(self, **changes: Any) -> WorkerState:
        """Announce a worker that is ready, except for the changes."""
        state = a_worker(**{"activity": "ready", "device": "cpu", "activity_seconds": 5.0, **changes})
        announce(self.ledger.redis, state)
        return state

    def machine(self, **changes: Any) -> None:
        announce_machine(self.ledger.redis, replace(MACHINE, **changes))

    def without_finalizer(self) -> None:
        withdraw_finalizer(self.ledger.redis, FINALIZER.name)

    def status(self, *, is_of_this_machine: bool = False, **options: Any) -> RunStatus:
        self.ledger.is_embedded = is_of_this_machine
        return run_status(self.ledger, self.run_id, **options)

    def show(self, moment: str, status: RunStatus | None = None, **options: Any) -> None:
        """Record the screen, the line for a pipe if it differs, and the JSON fields that differ from a new run's."""
        status = status or self.status(**options)
        found = {"level": level(status), "exit": status.exit_code.name, "over": status.is_over}
        line, when_new = progress_line(status), dict(fields_of(self._when_new))
        fields = [(name, value) for name, value in fields_of(status.as_json()) if value != when_new.get(name)]
        differs = [f"{name}: {json.dumps(value)}" for name, value in fields]
        parts = [
            f"=== {moment}: {', '.join(f'{name} {value}' for name, value in found.items())}",
            screen_text(status, WIDTH).plain.rstrip(),
            *([] if line == verdict(status) else [f"--- on a pipe\n{line}"]),
            *(["--- as JSON", *differs] if differs else []),
        ]
        self.shown.append("\n".join(parts).replace(status.run_id, "RUN").replace(status.queue, "QUEUE"))

    def text(self) -> str:
        return "\n\n".join(self.shown) + "\n"


def fields_of(status: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the fields of a status, such as `counts.done`, without the announcements, which the test has made itself."""
    found = json.loads(json.dumps(status), parse_float=lambda number: round(float(number), 3))
    for name, value in found.items():
        if isinstance(value, dict):
            yield from ((f"{name}.{part}", of_part) for part, of_part in value.items())
        elif name not in ANNOUNCED:
            yield name, value
