"""The first minutes of a user: versions and help, choices that are checked at once, and mistakes that end in one sentence."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from support.fleet import Fleet
from support.processes import BIN, run_command


class TestTheCommandsThemselves:
    @pytest.mark.parametrize("program", ["producer", "worker"])
    def test_they_tell_their_version_and_answer_to_short_help(self, program: str) -> None:
        version = run_command(program, "--version", environment={})
        short, long = (run_command(program, option, environment={}) for option in ("-h", "--help"))

        assert version.stdout.startswith("shardsift 0.")
        assert (version.returncode, short.returncode) == (0, 0)
        assert short.stdout == long.stdout
        assert "Usage" in short.stdout

    @pytest.mark.parametrize("program", ["producer", "worker"])
    def test_they_are_modules_too(self, program: str) -> None:
        done = run_command("python", "-m", program, "--help", environment={})

        assert done.returncode == 0
        assert f"python -m {program}" in done.stdout

    def test_the_shell_completes_them(self) -> None:
        words = {"_PRODUCER_COMPLETE": "complete_bash", "COMP_WORDS": "producer enq", "COMP_CWORD": "1"}

        done = run_command("producer", environment=words)

        assert done.stdout.split() == ["enqueue"]


class TestChoices:
    @pytest.mark.parametrize(
        ("command", "said"),
        [
            (("producer", "enqueue", "--dtype", "bf16"), "'bf16' is not one of 'auto', 'float32', 'bfloat16'"),
            (("producer", "run", "--function-to-apply", "relu"), "'relu' is not one of 'none', 'sigmoid', 'softmax'"),
            (("producer", "finalizer", "--log-level", "LOUD"), "'LOUD' is not one of"),
            (("producer", "flower", "--port", "99999"), "less than or equal to 65535"),
            (("worker", "start", "--dtype", "bf16"), "'bf16' is not one of 'auto', 'float32', 'bfloat16'"),
            (("worker", "start", "--backend", "magic"), "'magic' is not one of 'auto', 'padded', 'packed'"),
            (("worker", "start", "--spot-notice", "oracle"), "'oracle' is not one of 'aws', 'gcp', 'azure'"),
            (("worker", "start", "--log-level", "LOUD"), "'LOUD' is not one of"),
            (("worker", "tune", "--dtype", "bf16"), "'bf16' is not one of 'auto', 'float32', 'bfloat16'"),
        ],
        ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
    )
    def test_a_wrong_one_is_refused_before_anything_is_loaded(self, command: tuple[str, ...], said: str) -> None:
        started = time.monotonic()
        done = run_command(*command, environment={"COLUMNS": "200"})

        assert done.returncode == 2
        assert said in done.stderr
        assert "Traceback" not in done.stderr
        assert time.monotonic() - started < 5

    def test_a_wrong_one_in_the_environment_is_refused_too(self) -> None:
        done = run_command("worker", "start", environment={"SHARDSIFT_DTYPE": "bf16"})

        assert done.returncode == 2
        assert "SHARDSIFT_DTYPE has a wrong value: Input should be 'auto', 'float32'" in done.stderr


class TestScoringEverythingAgain:
    def test_it_is_not_done_without_confirmation(self, fleet: Fleet, shards: Path, tiny_model: Path) -> None:
        options = ("--input", shards, "--model", tiny_model, "--output", fleet.folder / "out")
        run_id = fleet.producer("enqueue", *options).stdout.strip()

        unconfirmed = fleet.producer("retry", run_id, "--all")
        confirmed = fleet.producer("retry", run_id, "--all", "--yes")

        assert (unconfirmed.returncode, confirmed.returncode) == (2, 0)
        assert "Confirm with --yes" in unconfirmed.stderr
        assert "queued again" not in unconfirmed.stderr
        assert "shards are queued again" in confirmed.stderr


class TestFilesOfTheUser:
    """A user's own modules in the current folder, called like our packages."""

    @pytest.fixture
    def folder(self, tmp_path: Path) -> Path:
        for name in ("worker", "fleet", "producer"):
            (tmp_path / f"{name}.py").write_text(
                f"open({str(tmp_path / 'imported')!r}, 'a').write('{name}\\n')\n1 / 0\n"
            )
        return tmp_path

    def in_folder(self, folder: Path, *command: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            list(map(str, command)),
            cwd=folder,
            env={**os.environ, "HF_HUB_OFFLINE": "1", **environment},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    def test_the_command_does_not_import_them(self, folder: Path) -> None:
        done = self.in_folder(folder, BIN / "producer", "runs", REDIS_URL="", SHARDSIFT_STATE_DIR=str(folder / "state"))

        assert "there was no `producer run` here" in done.stderr
        assert not (folder / "imported").exists()

    def test_neither_does_python_m(self, folder: Path) -> None:
        (folder / "producer.py").unlink()  # Python itself would take it for ours

        done = self.in_folder(
            folder, sys.executable, "-m", "producer", "runs", REDIS_URL="", SHARDSIFT_STATE_DIR=str(folder / "state")
        )

        assert "there was no `producer run` here" in done.stderr
        assert not (folder / "imported").exists()

    def test_a_local_run_does_not_import_them(self, folder: Path, shards: Path, tiny_model: Path) -> None:
        done = self.in_folder(
            folder,
            *(BIN / "producer", "run", "--input", shards, "--model", tiny_model, "--output", folder / "out"),
            SHARDSIFT_STATE_DIR=str(folder / "state"),
            SHARDSIFT_PARITY_ROWS="0",
            REDIS_URL="",
        )

        assert done.returncode == 0, done.stderr
        assert (folder / "out/manifest.parquet").exists()
        assert not (folder / "imported").exists()
