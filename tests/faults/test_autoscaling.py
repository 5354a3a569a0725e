"""An autoscaler only starts workers, as many as `producer demand` wants. The fleet shrinks by itself and loses nothing."""

import json
import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from fleet.presence.announcements import list_workers
from fleet.process.children import Child, kill, start
from producer.local.demo_data import write_shards
from support.fleet import Fleet
from support.injected_faults import STAND_IN, InjectedFaults
from support.outputs import manifest_lines, published_rows
from support.processes import BIN
from support.waiting import wait_until

MOST = 8
SHARDS, ROWS = 17, 12
SECONDS_A_ROW = 2.0  # so that all workers have started before the shards are done


@dataclass
class Autoscaler:
    """Starts machines of one CPU worker each while fewer run than are wanted, at most MOST. Never stops one."""

    fleet: Fleet
    machines: list[Child] = field(default_factory=list)
    seen: list[tuple[int, int]] = field(default_factory=list)  # wanted, running machines

    def step(self) -> None:
        wanted = self.wanted()
        while self.running() < min(wanted, MOST):
            self.machines.append(self._started(f"w{len(self.machines)}"))
        self.seen.append((wanted, self.running()))

    def wanted(self) -> int:
        done = self.fleet.call_producer("demand", "--json", "--shards-per-worker", "2")
        assert done.returncode == 0, done.stderr
        return int(json.loads(done.stdout)["wanted"])

    def running(self) -> int:
        return sum(machine.poll() is None for machine in self.machines)

    def _started(self, name: str) -> Child:
        log = self.fleet.log(name)
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as output:
            return start(
                [str(BIN / "worker"), "start", "--workers", "1", "--name", name, "--exit-when-idle", "3s"],
                environment=self.fleet.environment,
                output=output,
            )


@pytest.mark.faults
@pytest.mark.timeout(600)
def test_eight_workers_come_and_go_by_the_number_of_the_ledger_and_nothing_is_lost(
    fleet: Fleet, faults: InjectedFaults, tmp_path: Path
) -> None:
    faults.use_stand_in(rows_a_batch=1, seconds_a_batch=SECONDS_A_ROW)
    fleet.environment |= faults.environment | {"LOKY_MAX_CPU_COUNT": "2"}
    write_shards(tmp_path / "shards", shards=SHARDS, rows=ROWS, seed=1)
    (tmp_path / "model").mkdir()
    (tmp_path / "model/config.json").write_text(json.dumps({"id2label": {"0": "quality"}}))
    scaler = Autoscaler(fleet)
    scaler.step()  # nothing to do: no worker
    arguments = ("--input", tmp_path / "shards", "--model", tmp_path / "model", "--scorer", STAND_IN)
    done = fleet.call_producer("enqueue", *arguments, "--output", tmp_path / "out", "--keep-all")
    assert done.returncode == 0, done.stderr
    run_id = done.stdout.strip()

    most_busy = 0
    with fleet.finalizer():
        try:
            deadline = time.monotonic() + 500
            while fleet.ledger.publication(run_id) is None:
                assert time.monotonic() < deadline, scaler.seen
                scaler.step()
                busy = [worker for worker in list_workers(fleet.ledger.redis) if worker.activity == "busy"]
                most_busy = max(most_busy, len(busy))
                time.sleep(0.5)
            wait_until(lambda: scaler.running() == 0, description="idle workers leave by themselves", seconds=60)
        finally:
            for machine in scaler.machines:
                kill(machine)

    assert scaler.seen[0] == (0, 0)
    assert scaler.seen[1] == (9, MOST)  # 17 shards, two for each worker
    assert most_busy == MOST
    assert min(wanted for wanted, _ in scaler.seen[1:]) <= 1
    assert scaler.seen[-1][1] < MOST  # some had left before the run was published
    assert {machine.returncode for machine in scaler.machines} == {0}
    assert list_workers(fleet.ledger.redis) == []
    assert scaler.wanted() == 0
    assert len(manifest_lines(tmp_path / "out")) == SHARDS
    assert published_rows(tmp_path / "out").num_rows == SHARDS * ROWS
    assert faults.rows_scored() == SHARDS * ROWS  # none twice
