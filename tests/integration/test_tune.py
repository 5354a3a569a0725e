"""`worker tune` on a tiny model prints, draws and stores its result, and a worker's model then uses it."""

import json
import logging
import re
import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest

from shardsift.fleet.process.settings import Settings
from shardsift.fleet.scorers.sequence_classifier import resolve_classifier
from shardsift.worker.service.serving import load_served_model
from support.nli import nli_classifier
from support.processes import call_command

pytestmark = pytest.mark.usefixtures("one_thread", "pictures")
BUDGETS = ("--budgets", "500,1500")  # neither is the default on a CPU
SHORT = ("--dtype", "float32", "--rows", "12", "--repeats", "1")


class Tuned(NamedTuple):
    answer: subprocess.CompletedProcess[str]
    folder: Path


@pytest.fixture(scope="module")
def tuned(one_thread: None, tiny_model: Path, shards: Path, tmp_path_factory: pytest.TempPathFactory) -> Tuned:
    """One run of the command."""
    folder = tmp_path_factory.mktemp("tuned")
    options = (*SHORT, *BUDGETS, "--input", shards, "--output", folder / "curve.png", "--reference")
    return Tuned(tune("--model", tiny_model, *options, folder=folder), folder)


def tune(*options: str | Path, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run the command in a folder that is its state folder too."""
    environment = {"SHARDSIFT_STATE_DIR": str(folder), "SHARDSIFT_THREADS": "1"}
    return call_command("worker", "tune", *options, environment=environment, folder=folder)


def test_the_command_draws_a_curve_and_prints_a_line_per_setting_on_stdout_and_its_progress_on_stderr(
    tuned: Tuned,
) -> None:
    answer = tuned.answer
    assert answer.returncode == 0, answer.stderr

    lines = answer.stdout.splitlines()

    assert lines[0].split() == ["batch", "rows/s"]
    assert [line.split("  ")[0] for line in lines[1:5]] == [
        "500 tokens",
        "1,500 tokens",
        "pipeline, 5 rows",
        "pipeline, 10 rows",
    ]
    assert sum(line.endswith("best") for line in lines[1:3]) == 1
    assert not any(line.endswith("best") for line in lines[3:5])
    assert "12 texts: 12 sequences with " in answer.stdout
    assert (tuned.folder / "curve.png").read_bytes().startswith(b"\x89PNG")
    assert "Turn 1 of 1: 500 tokens:" in answer.stderr
    assert "Traceback" not in answer.stderr


def test_a_workers_model_uses_the_result_unless_the_user_chose(
    tuned: Tuned, tiny_model: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (entry,) = json.loads((tuned.folder / "tuning.json").read_text())
    settings = Settings(
        model=str(tiny_model), dtype="float32", threads=1, parity_rows=0, state_dir=tuned.folder, redis_url=None
    )
    model = resolve_classifier(str(tiny_model), None)

    with caplog.at_level(logging.INFO):
        scorer = load_served_model(model, settings)
    chosen = load_served_model(model, settings.model_copy(update={"max_batch_tokens": 777}))

    conditions = {"model": str(tiny_model), "device": "cpu", "dtype": "float32", "backend": "padded"}
    assert entry["key"] == {**conditions, "revision": model.revision}
    assert entry["max_batch_tokens"] in (500, 1500)
    assert scorer.max_batch_tokens == entry["max_batch_tokens"]
    assert f"Using batches of {entry['max_batch_tokens']} tokens, which `worker tune` found best" in caplog.text
    assert scorer.score(["A text."]).errors == {}
    assert chosen.max_batch_tokens == 777


@pytest.mark.slow
def test_the_batch_size_experiment_of_zero_shot_has_both_curves(tmp_path: Path) -> None:
    model = nli_classifier(tmp_path / "nli", "BART")
    options = ("--dtype", "float32", "--rows", "3", "--repeats", "1", "--budgets", "512", "--reference")
    labels = ("--labels", "climate change,food,code", "--output", tmp_path / "curve.png")

    lines = tune("--model", model, *options, *labels, folder=tmp_path).stdout.splitlines()

    assert [line.split("  ")[0] for line in lines[1:3]] == ["512 tokens", "pipeline, 5 rows"]
    assert any(line.startswith("3 texts: 9 sequences with ") for line in lines)
    assert (tmp_path / "curve.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--model", "one,two"), "`worker tune` tries one model"),
        (("--passages", "head+tail", "--reference"), "The plain pipeline takes neither --passages nor"),
        (("--labels", "a,b"), "cannot choose from --labels: none of its outputs is called entailment"),
    ],
)
def test_a_users_mistake_is_one_line_and_exit_code_2(
    tiny_model: Path, shards: Path, tmp_path: Path, options: tuple[str, ...], message: str
) -> None:
    answer = tune("--model", tiny_model, "--input", shards, *options, folder=tmp_path)

    assert answer.returncode == 2
    assert re.search(message, answer.stderr.splitlines()[-1])
    assert "Traceback" not in answer.stderr
    assert answer.stdout == ""
    assert not list(tmp_path.iterdir())
