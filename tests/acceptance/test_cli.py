"""The commands show help at once and errors in one line, and the control side needs no torch."""

import json
import resource
import subprocess
import sysconfig
import venv
from pathlib import Path

import pytest

from support.fleet import Fleet
from support.processes import call_command, run_command
from support.records import a_shard, a_spec

HEAVY = (
    "torch",
    "transformers",
    "tokenizers",
    "safetensors",
    "sentence_transformers",
    "sklearn",
    "scikit",
    "gt_all",
    "scipy",
)
COMMANDS = ("enqueue", "refilter", "status", "doctor", "demo")  # one of each file, and those whose code is heavy
HELP_SECONDS = 1.0


@pytest.fixture(scope="module")
def light_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment that has our packages and dependencies, and none of the `worker` extra."""
    folder = tmp_path_factory.mktemp("light") / "venv"
    venv.create(folder, with_pip=False, symlinks=True)
    site_packages = next(folder.glob("lib/python*/site-packages"))
    for entry in Path(sysconfig.get_path("purelib")).iterdir():
        if not entry.name.lower().startswith(HEAVY):
            (site_packages / entry.name).symlink_to(entry)
    assert not (site_packages / "torch").exists()
    return folder / "bin" / "python"


def light(
    python: Path, *arguments: str | Path, environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return run_command(python, "-m", "shardsift", *arguments, environment=environment or {}, seconds=60)


@pytest.mark.parametrize("command", [(), *((name,) for name in COMMANDS)])
def test_help_comes_in_under_a_second_without_torch(command: tuple[str, ...], light_python: Path) -> None:
    before = cpu_seconds_of_children()

    answer = light(light_python, *command, "--help")

    assert answer.returncode == 0
    assert "Usage" in answer.stdout
    assert "Example:" in answer.stdout or not command
    assert cpu_seconds_of_children() - before < HELP_SECONDS


def cpu_seconds_of_children() -> float:
    """The CPU seconds of a command. On a busy machine, wall-clock time says nothing about it."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


@pytest.mark.slow
def test_producer_commands_work_without_torch(light_python: Path, fleet: Fleet, shards: Path, tiny_model: Path) -> None:
    options = ("--input", shards, "--model", tiny_model, "--output", fleet.folder / "out")

    planned = light(light_python, "enqueue", *options, "--dry-run", "--json", environment=fleet.environment)
    sent = light(light_python, "enqueue", *options, "--json", environment=fleet.environment)
    local = light(light_python, "run", *options, environment=fleet.environment)

    assert json.loads(planned.stdout)["rows"] == 96
    estimate = json.loads(planned.stdout)["estimate"]
    assert estimate["rows"] == 96
    assert estimate["tokens"] > 10_000
    assert "this machine has no tokenizers: pip install 'shardsift[estimate]'" in estimate["notes"][0]
    assert json.loads(planned.stdout)["run_id"] == json.loads(sent.stdout)["run_id"]
    assert json.loads(sent.stdout)["added"] == 8
    assert (local.returncode, "pip install 'shardsift[worker]'" in local.stderr) == (2, True)


@pytest.mark.parametrize("command", ["enqueue", "run"])
def test_a_dry_run_touches_nothing(command: str, fleet: Fleet, shards: Path, tiny_model: Path) -> None:
    output = fleet.folder / "out"

    done = fleet.call_producer(command, "--input", shards, "--model", tiny_model, "--output", output, "--dry-run")

    assert done.returncode == 0
    assert "tasks: 8" in done.stdout
    assert "estimate: 96 rows, " in done.stdout
    assert "under a minute of work on each kind of GPU; a CPU takes far longer" in done.stdout
    assert not output.exists()
    assert fleet.ledger.redis.keys("*") == []


def test_files_of_unknown_endings_are_told_once(fleet: Fleet, shards: Path, tiny_model: Path) -> None:
    folder = fleet.folder / "in"
    folder.mkdir()
    (folder / "a.parquet").symlink_to(shards / "000_00000.parquet")
    for name in ("a.xz", "b.xz", "c.xz", "d.xz"):
        (folder / name).write_text("")
    said = "Not read, because a name begins with _ or its ending is not that of an input: a.xz, b.xz, c.xz and 1 more."

    options = ("--input", folder, "--model", tiny_model, "--output", fleet.folder / "out", "--keep-all")
    done = fleet.call_producer("enqueue", *options, "--dry-run", "--json")

    assert json.loads(done.stdout)["tasks"] == 1
    assert done.stderr.count(said) == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("status", "nosuch"), "The ledger has no run 'nosuch'. Newest runs"),
        (("retry", "nosuch"), "The ledger has no run 'nosuch'"),
        (("set", "nosuch"), "Say what to change"),
        (("enqueue", "--input", "nowhere", "--output", "out"), "nowhere"),
        (("enqueue", "--output", "out"), "either --crawl CC-MAIN-2024-10 or --input PATH"),
        (("enqueue", "--input", "x"), "Say where to put the rows"),
        (("status", "kept"), "kept is a folder. To check it, run: producer verify ./kept"),
        (("status", "hf://datasets/ada/kept"), "is a URI. To check it, run: producer verify hf://datasets/ada/kept"),
        (("status", "./nope"), "There is no folder ./nope, and a run id has no slash."),
        (("status", "model"), "model is a model, not a dataset."),
        (("verify", "nope"), "'nope' is no folder here, and cannot be looked up as a run: The ledger has no run"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_a_mistake_is_one_line_on_stderr_and_exit_code_2(
    arguments: tuple[str, ...], said: str, fleet: Fleet, tmp_path: Path
) -> None:
    fleet.ledger.create_run(a_spec(), [a_shard()], now=0)
    (tmp_path / "kept").mkdir()
    (tmp_path / "model").mkdir()
    (tmp_path / "model/config.json").touch()

    done = call_command("producer", *arguments, environment=fleet.environment, folder=tmp_path)

    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("producer: ")
    assert said in done.stderr
    assert done.stderr.count("\n") == 1


def test_without_a_run_status_says_so(fleet: Fleet) -> None:
    done = fleet.call_producer("status")

    assert (done.returncode, done.stdout) == (2, "")
    assert "There are no runs yet" in done.stderr


@pytest.mark.parametrize(
    "command", [("enqueue",), ("finalizer",), ("flower",), ("verify", "nope"), ("refilter", "nope")], ids=" ".join
)
def test_without_a_redis_every_command_says_so(
    command: tuple[str, ...], machine: dict[str, str], shards: Path, tiny_model: Path, tmp_path: Path
) -> None:
    if command == ("enqueue",):
        command += ("--input", str(shards), "--model", str(tiny_model), "--output", "out")

    done = call_command("producer", *command, environment=machine, folder=tmp_path)

    assert done.returncode == 2
    assert "No Redis is named" in done.stderr
    assert "Set REDIS_URL" in done.stderr
    assert not (tmp_path / "out").exists()
