"""A producer may die or run twice while a fleet works: nothing partial is ever published."""

import json
import os
import signal
import subprocess
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from support.disturbed_runs import DisturbedRuns
from support.injected_faults import STAND_IN
from support.processes import BIN, run_command
from support.waiting import wait_until

RESERVE = "shardsift.fleet.storage.folder:FolderOutput.reserve"
ADD = "shardsift.fleet.ledger.ledger:Ledger._run_script"  # the first of an enqueue takes receipts, and the second adds shards
RESTORE = "shardsift.fleet.ledger.ledger:Ledger.restore"
TAKE = "shardsift.fleet.ledger.ledger:Ledger.take_due"
SEND = "shardsift.fleet.dispatch:_send"


def options(runs: DisturbedRuns) -> list[str | Path]:
    what = ["--input", runs.shards, "--model", runs.model, "--scorer", STAND_IN, "--dtype", "float32"]
    return [*what, "--output", runs.output, "--json"]


def enqueue(runs: DisturbedRuns, **environment: str) -> CompletedProcess[str]:
    return run_command("producer", "enqueue", *options(runs), environment=runs.fleet.environment | environment)


def run_id_of(done: CompletedProcess[str]) -> str:
    assert done.returncode == 0, done.stderr
    return str(json.loads(done.stdout)["run_id"])


@pytest.mark.faults
@pytest.mark.parametrize(
    ("place", "moment"),
    [
        (RESERVE, "before"),
        (RESERVE, "after"),
        (ADD, "after"),
        (RESTORE, "before"),
        (TAKE, "after"),
        (SEND, "before"),
        (SEND, "after"),
    ],
)
def test_a_producer_may_die_between_any_two_effects_of_enqueue(place: str, moment: str, runs: DisturbedRuns) -> None:
    sane = runs.faults.environment
    runs.faults.at(place, moment, "kill", program="producer")

    with runs.finalizer(**sane), runs.worker(**sane):
        killed = enqueue(runs, **runs.faults.environment)
        run_id = run_id_of(enqueue(runs, **sane))
        runs.wait_until_published(run_id)

    assert killed.returncode == -signal.SIGKILL
    runs.check_each_row_scored_once(run_id)


@pytest.mark.faults
@pytest.mark.parametrize("fault", ["kill", "freeze"])
def test_no_done_shard_is_scored_again_if_a_restoring_producer_dies_or_stalls(fault: str, runs: DisturbedRuns) -> None:
    sane = runs.faults.environment
    run_id = run_id_of(enqueue(runs))
    with runs.worker(**sane):
        wait_until(lambda: runs.fleet.ledger.counts(run_id).done == 6, description="all shards are done")
    runs.fleet.ledger.redis.flushall()
    runs.faults.at(RESTORE, "before", fault, program="producer")

    with runs.finalizer(**sane), runs.worker(**sane):
        command = [str(part) for part in (BIN / "producer", "enqueue", *options(runs))]
        first = subprocess.Popen(command, env=os.environ | runs.fleet.environment | runs.faults.environment)
        wait_until(runs.faults.fired, description="the producer is stopped midway")
        runs.wait_for_sweeps(run_id, 1)  # the finalizer inspects the run
        if fault == "kill":
            assert run_id_of(enqueue(runs)) == run_id
        else:
            first.send_signal(signal.SIGCONT)
        first.wait(timeout=60)
        runs.wait_until_published(run_id)

    runs.check_each_row_scored_once(run_id)


@pytest.mark.faults
def test_the_same_command_twice_at_once_adds_each_shard_once(runs: DisturbedRuns) -> None:
    command = [str(part) for part in (BIN / "producer", "enqueue", *options(runs))]
    environment = os.environ | runs.fleet.environment

    both = [
        subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    answers = [process.communicate(timeout=120) for process in both]
    reports = [json.loads(stdout) for stdout, _ in answers]
    with runs.served(workers=2):
        runs.wait_until_published(reports[0]["run_id"])

    assert [process.returncode for process in both] == [0, 0]
    assert reports[0]["run_id"] == reports[1]["run_id"]
    assert sum(report["added"] for report in reports) == 6
    runs.check_each_row_scored_once(reports[0]["run_id"])
