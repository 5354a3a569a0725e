"""A worker whose model is divided between two ranks: it publishes what a plain worker does, and any of its processes may die.

The ranks are on the CPU and speak gloo. On GPUs they speak NCCL, which these tests do not cover.
"""

import signal
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import psutil
import pytest

from shardsift.fleet.process.children import Child
from shardsift.fleet.run.model import SEQUENCE_CLASSIFIER
from shardsift.producer.local.demo_data import write_shards
from support.disturbed_runs import DisturbedRuns, child_of
from support.fleet import Fleet, new_fleet
from support.injected_faults import InjectedFaults
from support.large_models import divisible_llama, ranks_of
from support.leftovers import is_alive, processes_with
from support.outputs import data_digests, manifest_lines, published_rows
from support.waiting import wait_until

DIVIDED = {"SHARDSIFT_GPUS_PER_WORKER": "2", "SHARDSIFT_SHARDING": "tensor", "SHARDSIFT_DEVICE": "cpu"}
SECONDS = 240  # each start loads torch in two processes
STOP_SECONDS = 10

pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return divisible_llama(tmp_path_factory.mktemp("llama") / "model", layers=8)


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("texts") / "shards"
    write_shards(folder, shards=4, rows=100, seed=5)
    return folder


def runs_of(fleet: Fleet, shards: Path, model: Path, output: Path, undisturbed: Path | None = None) -> DisturbedRuns:
    faults = InjectedFaults(output.parent / "faults")  # none; but by it `processes_with` knows the processes
    faults.folder.mkdir(exist_ok=True)
    compared = undisturbed or output
    return DisturbedRuns(
        fleet, faults, shards, model, output, lambda *_: data_digests(compared), scorer=SEQUENCE_CLASSIFIER
    )


@pytest.fixture
def divided_runs(fleet: Fleet, texts: Path, llama: Path, undisturbed_output: Path, tmp_path: Path) -> DisturbedRuns:
    fleet.environment |= DIVIDED
    return runs_of(fleet, texts, llama, tmp_path / "out", undisturbed_output)


@pytest.fixture(scope="module")
def undisturbed_output(texts: Path, llama: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `worker start --gpus-per-worker 2` publishes."""
    folder = tmp_path_factory.mktemp("undisturbed")
    with new_fleet(folder) as fleet:
        runs = runs_of(fleet, texts, llama, folder / "out")
        run_id = runs.enqueue()
        environment = runs.environment | {"SHARDSIFT_THREADS": "1"}
        options = ("--model", llama, "--device", "cpu", "--gpus-per-worker", "2")
        with runs.finalizer(), fleet.machine(*options, environment=environment):
            runs.wait_until_published(run_id, seconds=SECONDS)
    return folder / "out"


@pytest.fixture
def plain_output(fleet: Fleet, texts: Path, llama: Path, tmp_path: Path) -> Path:
    """What a worker with an undivided model publishes."""
    runs = runs_of(fleet, texts, llama, tmp_path / "plain")
    run_id = runs.enqueue()
    with runs.served():
        runs.wait_until_published(run_id, seconds=SECONDS)
    return tmp_path / "plain"


def rank_of(worker: Child) -> psutil.Process:
    (rank,) = ranks_of(child_of(worker))
    return rank


def wait_for_work(runs: DisturbedRuns, run_id: str) -> None:
    """Until rows are scored, of a run that is far from done."""
    wait_until(lambda: runs.fleet.ledger.counts(run_id).rows_scored, description="rows are scored", seconds=SECONDS)


def are_gone(processes: list[psutil.Process]) -> bool:
    return not any(map(is_alive, processes))


@pytest.mark.slow
def test_a_worker_of_two_ranks_publishes_the_rows_of_a_plain_one(undisturbed_output: Path, plain_output: Path) -> None:
    ours, theirs = published_rows(undisturbed_output, "scores"), published_rows(plain_output, "scores")

    assert ours.drop_columns(["score"]).equals(theirs.drop_columns(["score"]))
    assert np.abs(ours["score"].to_numpy() - theirs["score"].to_numpy()).max() <= 1e-5
    assert len(ours) == 400
    assert published_rows(undisturbed_output)["id"].equals(published_rows(plain_output)["id"])
    assert {line["scorings"][0]["backend"] for line in manifest_lines(undisturbed_output)} == {  # type: ignore[index]
        "padded, tensor parallel over 2"
    }


@pytest.mark.faults
@pytest.mark.parametrize(
    ("number", "victim"), [(signal.SIGKILL, rank_of), (signal.SIGSTOP, rank_of), (signal.SIGKILL, child_of)]
)
def test_a_lost_rank_or_child_costs_no_row_and_the_group_comes_up_again(
    number: signal.Signals, victim: Callable[[Child], psutil.Process], divided_runs: DisturbedRuns
) -> None:
    run_id = divided_runs.enqueue()

    with divided_runs.finalizer(), divided_runs.worker(SHARDSIFT_STALL_SECONDS="20") as worker:
        wait_for_work(divided_runs, run_id)
        lost = [rank_of(worker), child_of(worker)]
        victim(worker).send_signal(number)
        wait_until(lambda: are_gone(lost), description="the group has ended")
        divided_runs.wait_until_published(run_id, seconds=SECONDS)

    divided_runs.check_nothing_lost_nothing_twice(run_id)
    assert divided_runs.attempts() == {1, 2}


@pytest.mark.faults
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_all_ranks_of_a_worker_that_ends_are_gone_in_ten_seconds_and_another_finishes_its_shard(
    number: signal.Signals, divided_runs: DisturbedRuns
) -> None:
    run_id = divided_runs.enqueue()

    with divided_runs.worker("w1") as worker:
        wait_for_work(divided_runs, run_id)
        group = psutil.Process(worker.pid).children(recursive=True)
        assert rank_of(worker) in group
        began = time.monotonic()
        worker.send_signal(number)
        worker.wait(2 * STOP_SECONDS)
        wait_until(lambda: are_gone(group), description="no process of the worker is left")

        assert time.monotonic() - began < STOP_SECONDS
    assert not processes_with(divided_runs.faults.folder)
    with divided_runs.finalizer(), divided_runs.worker("w2"):
        divided_runs.wait_until_published(run_id, seconds=SECONDS)

    divided_runs.check_nothing_lost_nothing_twice(run_id)
    if number == signal.SIGTERM:
        assert divided_runs.attempts() == {1}
