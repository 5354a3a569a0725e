"""A producer may die, run twice or be contradicted while a fleet works: nothing partial is ever published."""

import json
import os
import signal
import subprocess
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from shardsift.producer.local.demo_data import write_shards
from support.disturbed_runs import ALL_ROWS, DisturbedRuns
from support.finalizer_runs import publish_as_other_run
from support.injected_faults import STAND_IN, InjectedFaults
from support.outputs import manifest_lines
from support.processes import BIN, run_command, started
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
def test_a_producer_may_die_between_any_two_effects_of_enqueue(
    place: str, moment: str, runs: DisturbedRuns, faults: InjectedFaults, undisturbed_by_command: dict[str, str]
) -> None:
    sane = faults.environment
    faults.at(place, moment, "kill", program="producer")

    with runs.finalizer(**sane), runs.worker(**sane):
        killed = enqueue(runs, **faults.environment)
        run_id = run_id_of(enqueue(runs, **sane))
        runs.wait_until_published(run_id)

    assert killed.returncode == -signal.SIGKILL
    runs.check_each_row_scored_once(run_id, undisturbed_by_command)


@pytest.mark.faults
def test_a_half_enqueued_run_is_not_published_until_the_same_command_finishes(
    faults: InjectedFaults, runs: DisturbedRuns, tmp_path: Path
) -> None:
    """The ledger takes 200 shards per call: of 203 shards, a producer that dies between two calls leaves 3 out."""
    runs.shards = tmp_path / "many"
    write_shards(runs.shards, shards=203, rows=1, seed=4)
    faults.use_stand_in(seconds_a_batch=0)
    sane = faults.environment
    faults.at(ADD, "after", "kill", passes=1, program="producer")

    with runs.finalizer(**sane), runs.worker("w1", **sane), runs.worker("w2", **sane):
        killed = enqueue(runs, **faults.environment)
        (run_id,) = runs.fleet.ledger.run_ids()
        said = runs.fleet.producer("status", run_id)
        forced = runs.fleet.producer("finalize", run_id)
        assert not (runs.output / "manifest.parquet").exists()

        assert run_id_of(enqueue(runs, **sane)) == run_id
        runs.wait_until_published(run_id)

    assert killed.returncode == -signal.SIGKILL
    assert (said.returncode, forced.returncode) == (3, 3)
    assert "Enqueueing has not finished. If its command has ended, run it again." in said.stdout
    assert "enqueueing was interrupted; run the same command again" in forced.stderr
    assert len(manifest_lines(runs.output)) == 203
    assert runs.faults.rows_scored() == 203


@pytest.mark.faults
@pytest.mark.parametrize("fault", ["kill", "freeze"])
def test_done_shards_are_not_scored_again_if_the_producer_that_restores_them_dies_or_is_slow(
    fault: str, faults: InjectedFaults, runs: DisturbedRuns, undisturbed_by_command: dict[str, str]
) -> None:
    sane = faults.environment
    run_id = run_id_of(enqueue(runs))
    with runs.worker(**sane):
        wait_until(lambda: runs.fleet.ledger.counts(run_id).done == 6, description="all shards are done")
    runs.fleet.ledger.redis.flushall()
    faults.at(RESTORE, "before", fault, program="producer")

    with runs.finalizer(**sane), runs.worker(**sane):
        command = [str(part) for part in (BIN / "producer", "enqueue", *options(runs))]
        first = subprocess.Popen(command, env=os.environ | runs.fleet.environment | faults.environment)
        wait_until(faults.fired, description="the producer is stopped midway")
        runs.wait_for_sweeps(run_id, 1)  # the finalizer inspects the run
        if fault == "kill":
            assert run_id_of(enqueue(runs)) == run_id
        else:
            first.send_signal(signal.SIGCONT)
        first.wait(timeout=60)
        runs.wait_until_published(run_id)

    runs.check_each_row_scored_once(run_id, undisturbed_by_command)


@pytest.mark.faults
def test_the_same_command_twice_at_once_adds_each_shard_once(
    runs: DisturbedRuns, faults: InjectedFaults, undisturbed_by_command: dict[str, str]
) -> None:
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
    runs.check_each_row_scored_once(reports[0]["run_id"], undisturbed_by_command)


@pytest.mark.faults
def test_a_run_that_was_cancelled_midway_is_resumed_where_it_stopped(
    runs: DisturbedRuns, faults: InjectedFaults, undisturbed_by_command: dict[str, str]
) -> None:
    faults.use_stand_in(seconds_a_batch=0.6)
    run_id = run_id_of(enqueue(runs))

    with runs.served(workers=2):
        runs.wait_for_rows(run_id, 12)
        assert runs.fleet.producer("cancel", run_id).returncode == 0
        wait_until(lambda: not runs.fleet.ledger.counts(run_id).running, description="the workers drop it")
        rows_when_cancelled = runs.faults.rows_scored()
        assert runs.fleet.producer("retry", run_id).returncode == 0
        runs.wait_until_published(run_id)

    assert rows_when_cancelled < ALL_ROWS
    assert runs.attempts() == {1}
    runs.check_each_row_scored_once(run_id, undisturbed_by_command)


@pytest.mark.faults
def test_a_command_that_waits_ends_with_the_reason_if_publishing_cannot_succeed(runs: DisturbedRuns) -> None:
    """Another run's manifest appears in the output after this run has reserved it."""
    log = runs.fleet.log("producer")
    command = started("producer", "enqueue", *options(runs), "--wait", environment=runs.fleet.environment, log=log)

    with command as waiting:
        wait_until(lambda: runs.fleet.ledger.run_ids(), description="the run is enqueued")
        publish_as_other_run(runs.output)
        with runs.served():
            waiting.wait(timeout=60)

    assert waiting.returncode == 1
    assert "the data of another run, other" in log.read_text()
