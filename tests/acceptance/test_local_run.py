"""`producer run`: the main job on one machine, which a user starts, stops and starts again.

Tests that do not depend on the model use the stand-in scorer, because torch takes seconds to load.
"""

import shutil
import signal
from pathlib import Path
from typing import Any

import pytest

from shardsift.fleet.ledger import Ledger
from shardsift.fleet.process.settings import read_settings
from shardsift.producer.local.redis import embedded_redis
from shardsift.producer.local.run import run_locally
from shardsift.producer.planning.options import RunOptions
from shardsift.producer.planning.plan import plan_run
from shardsift.producer.status import run_status
from support.injected_faults import STAND_IN, InjectedFaults
from support.leftovers import processes_with
from support.outputs import data_digests
from support.processes import run_command, started
from support.small_fleet import enqueue_and_wait
from support.waiting import wait_until


@pytest.fixture
def quick_machine(machine: dict[str, str], faults: InjectedFaults) -> dict[str, str]:
    """The same machine, whose workers load no model."""
    return machine | faults.environment


@pytest.fixture(scope="module")
def undisturbed(shards: Path, tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The files of a run with the stand-in scorer, in this process: path → sha256."""
    folder = tmp_path_factory.mktemp("undisturbed")
    options = RunOptions(
        input_uris=(str(shards),),
        models=(str(tiny_model),),
        output_uri=str(folder / "out"),
        dtype="float32",
        scorer=STAND_IN,
    )
    with embedded_redis(folder / "redis") as url:
        enqueue_and_wait(url, plan_run(options), folder)
    return data_digests(folder / "out")


@pytest.fixture
def job(shards: Path, tiny_model: Path, tmp_path: Path) -> list[str]:
    """The command, by the stand-in scorer."""
    paths = map(str, ("--input", shards, "--model", tiny_model, "--output", tmp_path / "out"))
    return ["producer", "run", *paths, "--dtype", "float32", "--scorer", STAND_IN]


@pytest.mark.slow
def test_a_stopped_run_leaves_no_process_and_goes_on_to_the_same_bytes(
    job: list[str], quick_machine: dict[str, str], undisturbed: dict[str, str], faults: InjectedFaults, tmp_path: Path
) -> None:
    faults.use_stand_in(seconds_a_batch=1)  # so that the run continues for ten more seconds
    job += ["--workers", "2"]

    with started(*job, environment=quick_machine | faults.environment, log=tmp_path / "log") as stopped:
        receipts = tmp_path / "out/.shardsift"
        wait_until(lambda: any(receipts.rglob("receipts/*/*.json")), description="a first shard is done", seconds=120)
        stopped.send_signal(signal.SIGINT)
        stopped.wait(timeout=60)
        wait_until_gone(tmp_path)

    assert stopped.returncode == 130
    assert "Run the same command again to resume" in (tmp_path / "log").read_text()
    assert not (tmp_path / "out/manifest.parquet").exists()
    again = run_command(*job, environment=quick_machine)
    assert again.returncode == 0, again.stderr
    assert data_digests(tmp_path / "out") == undisturbed


def wait_until_gone(folder: Path) -> None:
    """Wait until every process of the run has ended."""
    wait_until(lambda: not processes_with(folder / "state"), description="all processes have ended", seconds=60)


@pytest.mark.slow
def test_a_run_that_is_published_while_it_is_stopped_is_told_as_published(
    quick_machine: dict[str, str], shards: Path, tiny_model: Path, tmp_path: Path, monkeypatch: Any
) -> None:
    for name, value in quick_machine.items():
        monkeypatch.setenv(name, value)
    options = RunOptions(
        input_uris=(str(shards),),
        models=(str(tiny_model),),
        output_uri=str(tmp_path / "out"),
        keep_all=True,
        limit_rows=12,
        scorer=STAND_IN,
    )

    def stop(ledger: Ledger, run_id: str) -> None:
        wait_until(lambda: run_status(ledger, run_id).is_published, description="the run is published", seconds=60)
        raise KeyboardInterrupt

    ended = run_locally(plan_run(options), read_settings(), workers=1, on_poll=stop)

    assert ended.is_published


@pytest.mark.slow
def test_a_model_that_does_not_load_ends_the_run_with_the_reason(
    machine: dict[str, str], shards: Path, tiny_model: Path, tmp_path: Path
) -> None:
    headless = Path(shutil.copytree(tiny_model, tmp_path / "headless"))
    (headless / "model.safetensors").write_bytes(b"nothing")

    done = run_command(
        "producer", "run", "--input", shards, "--model", headless, "--output", tmp_path / "out", environment=machine
    )

    assert done.returncode == 2
    assert "does not load as a sequence classifier" in done.stderr
    wait_until_gone(tmp_path)
