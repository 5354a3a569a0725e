"""`producer run`: the main job on one machine, which a user starts, stops and starts again.

Tests that do not depend on the model use the stand-in scorer, because torch takes seconds to load.
"""

import os
import shutil
import signal
import subprocess
from pathlib import Path

import psutil
import pytest

from shardsift.fleet.ledger import Ledger
from shardsift.fleet.process.settings import read_settings
from shardsift.producer.local.redis import embedded_redis
from shardsift.producer.local.run import run_locally
from shardsift.producer.planning.options import RunOptions
from shardsift.producer.planning.plan import plan_run
from shardsift.producer.status import run_status
from support.injected_faults import STAND_IN, InjectedFaults
from support.outputs import data_digests, published_rows
from support.processes import BIN, run_command
from support.small_fleet import enqueue_and_wait
from support.waiting import wait_until


@pytest.fixture
def machine(tmp_path: Path) -> dict[str, str]:
    """A machine without REDIS_URL, with its own state folder."""
    return {
        "SHARDSIFT_STATE_DIR": str(tmp_path / "state"),
        "SHARDSIFT_PARITY_ROWS": "0",  # saves seconds per start; the gate has its own tests
        "HF_HUB_OFFLINE": "1",
        "REDIS_URL": "",
    }


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


def run_job(
    machine: dict[str, str], shards: Path, model: Path | str, output: Path, *more: str, folder: Path | None = None
) -> subprocess.CompletedProcess[str]:
    arguments = ("--input", shards, "--model", model, "--output", output, "--dtype", "float32", *more)
    arguments += ("--scorer", machine.get("SHARDSIFT_SCORER", "sequence-classifier"))
    return run_command("producer", "run", *arguments, environment=machine, folder=folder)


def processes_of(machine: dict[str, str]) -> list[psutil.Process]:
    """Every process that was started for this machine's state folder."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("SHARDSIFT_STATE_DIR") == machine["SHARDSIFT_STATE_DIR"]:
                found.append(process)
        except (psutil.Error, OSError):
            continue
    return found


def test_a_run_beside_another_fleet_of_celery_is_the_same(
    shards: Path, tiny_model: Path, tmp_path: Path, quick_machine: dict[str, str], undisturbed: dict[str, str]
) -> None:
    (tmp_path / "celeryconfig.py").write_text("raise SystemExit('the configuration of others')")
    others = {
        "CELERY_BROKER_URL": "redis://127.0.0.1:1/0",
        "CELERY_RESULT_BACKEND": "db+nothing://",
        "CELERY_CONFIG_MODULE": "celeryconfig",
        "DJANGO_SETTINGS_MODULE": "site.settings",
        "FORKED_BY_MULTIPROCESSING": "1",
        "_MP_FORK_LOGFILE_": str(tmp_path / "no" / "folder"),
        "PICKLE_PROTOCOL": "none",
        "PROMETHEUS_MULTIPROC_DIR": str(tmp_path / "none"),
    }

    done = run_job(quick_machine | others, shards, tiny_model, tmp_path / "out", folder=tmp_path)

    assert done.returncode == 0, done.stderr
    assert data_digests(tmp_path / "out") == undisturbed


@pytest.mark.slow
def test_a_stopped_run_leaves_no_process_and_goes_on_to_the_same_bytes(
    quick_machine: dict[str, str],
    undisturbed: dict[str, str],
    faults: InjectedFaults,
    shards: Path,
    tiny_model: Path,
    tmp_path: Path,
) -> None:
    machine = quick_machine
    faults.use_stand_in(seconds_a_batch=1)  # so that the run continues for ten more seconds
    slow = {**os.environ, **machine, **faults.environment}
    command = [str(BIN / "producer"), "run", "--input", str(shards), "--model", str(tiny_model)]
    command += ["--output", str(tmp_path / "out"), "--dtype", "float32", "--workers", "2", "--scorer", STAND_IN]

    stopped = subprocess.Popen(
        command,
        env=slow,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    staged = tmp_path / "out/.shardsift"
    wait_until(lambda: any(staged.rglob("receipts/*/*.json")), description="a first shard is done", seconds=120)
    stopped.send_signal(signal.SIGINT)
    _, said = stopped.communicate(timeout=60)

    wait_until(lambda: not processes_of(machine), description="every process of the run has ended", seconds=60)
    assert stopped.returncode == 130
    assert b"Run the same command again to resume" in said
    assert not (tmp_path / "out/manifest.parquet").exists()
    again = run_job(machine, shards, tiny_model, tmp_path / "out", "--workers", "2")
    assert again.returncode == 0, again.stderr
    assert data_digests(tmp_path / "out") == undisturbed


@pytest.mark.slow
def test_the_best_rows_of_scores_that_were_published_without_a_failed_shard_are_published_without_it_too(
    quick_machine: dict[str, str], faults: InjectedFaults, shards: Path, tiny_model: Path, tmp_path: Path
) -> None:
    place = "shardsift.worker.service.attempt:Attempt._score_and_record"
    faults.at(place, "before", "runtime error", program="__main__.py")
    machine, best = quick_machine | faults.environment | {"SHARDSIFT_MAX_ATTEMPTS": "1"}, tmp_path / "best"
    job = ("--input", shards, "--model", tiny_model, "--output", best, "--keep-top", "30%", "--scorer", STAND_IN)

    failed = run_command("producer", "run", *job, environment=machine)
    published = run_command("producer", "finalize", environment=machine)
    done = run_command("producer", "run", *job, environment=machine)

    assert (failed.returncode, published.returncode, done.returncode) == (1, 1, 1), done.stderr
    assert "published without its failed shards" in done.stdout
    assert published_rows(best).num_rows == pytest.approx(0.3 * (96 - 12), abs=3)


@pytest.mark.slow
@pytest.mark.parametrize("share", [None, "30%"])
def test_a_run_that_is_published_while_it_is_stopped_is_told_as_published_unless_it_was_the_first_of_two(
    quick_machine: dict[str, str],
    shards: Path,
    tiny_model: Path,
    tmp_path: Path,
    faults: InjectedFaults,
    monkeypatch: pytest.MonkeyPatch,
    share: str | None,
) -> None:
    faults.use_stand_in()
    for name, value in (quick_machine | faults.environment).items():
        monkeypatch.setenv(name, value)
    options = RunOptions(
        input_uris=(str(shards),),
        models=(str(tiny_model),),
        output_uri=str(tmp_path / "out"),
        keep_all=share is None,
        keep_top=share,
        limit_rows=12,
        scorer=STAND_IN,
    )

    def stop(ledger: Ledger, run_id: str) -> None:
        wait_until(lambda: run_status(ledger, run_id).is_published, description="the run is published", seconds=60)
        raise KeyboardInterrupt

    if share:
        with pytest.raises(KeyboardInterrupt):
            run_locally(plan_run(options), read_settings(), workers=1, on_poll=stop)
        return
    ended = run_locally(plan_run(options), read_settings(), workers=1, on_poll=stop)

    assert ended.is_published


@pytest.mark.slow
def test_a_model_that_does_not_load_ends_the_run_with_the_reason(
    machine: dict[str, str], shards: Path, tiny_model: Path, tmp_path: Path
) -> None:
    headless = tmp_path / "headless"
    shutil.copytree(tiny_model, headless)
    (headless / "model.safetensors").write_bytes(b"nothing")

    done = run_job(machine, shards, headless, tmp_path / "out")

    assert done.returncode == 2
    assert "does not load as a sequence classifier" in done.stderr
    wait_until(lambda: not processes_of(machine), description="every process of the run has ended")
