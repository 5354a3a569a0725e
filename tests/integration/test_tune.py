"""`worker tune` on a tiny model prints, draws and stores its result, and a worker's model then uses it."""

import json
import logging
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from transformers import AutoTokenizer

from fleet.process.settings import Settings
from fleet.run.sequence_classifier import resolve_classifier
from support.nli import nli_classifier
from support.processes import call_command
from worker.cli import main
from worker.service.serving import load_served_model

BUDGETS = ("--budgets", "500,1500")  # neither is the default on a CPU
SHORT = ("--dtype", "float32", "--rows", "12", "--repeats", "1")


class Tuned(NamedTuple):
    answer: subprocess.CompletedProcess[str]
    folder: Path


@pytest.fixture(autouse=True)
def _own_environment_and_one_thread() -> Iterator[None]:
    """Restore the environment, in which the command stores its options."""
    environment, threads = dict(os.environ), torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
    os.environ.clear()
    os.environ.update(environment)


@pytest.fixture(scope="module")
def tuned(one_thread: None, tiny_model: Path, shards: Path, tmp_path_factory: pytest.TempPathFactory) -> Tuned:
    """One run of the command."""
    folder = tmp_path_factory.mktemp("tuned")
    options = (*SHORT, *BUDGETS, "--input", shards, "--output", folder / "curve.png", "--reference")
    environment = {"SHARDSIFT_STATE_DIR": str(folder), "SHARDSIFT_THREADS": "1"}
    return Tuned(call_command("worker", "tune", "--model", tiny_model, *options, environment=environment), folder)


def settings_for(model: Path, state_dir: Path, **changes: object) -> Settings:
    return Settings(
        model=str(model), dtype="float32", threads=1, parity_rows=0, state_dir=state_dir, redis_url=None
    ).model_copy(update=changes)


def stored(state_dir: Path) -> list[dict[str, object]]:
    entries: list[dict[str, object]] = json.loads((state_dir / "tuning.json").read_text())
    return entries


def tune(*options: str | Path, state_dir: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    """Run the command in this process. Returns its exit code."""
    monkeypatch.setenv("SHARDSIFT_STATE_DIR", str(state_dir))
    monkeypatch.setenv("SHARDSIFT_THREADS", "1")
    monkeypatch.setattr(sys, "argv", ["worker", "tune", *map(str, options)])
    with pytest.raises(SystemExit) as end:
        main()
    return int(end.value.code or 0)


def test_it_draws_a_curve_and_prints_a_line_per_setting_on_stdout_and_its_progress_on_stderr(tuned: Tuned) -> None:
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


def test_it_stores_the_best_with_the_conditions_for_which_it_holds(tuned: Tuned, tiny_model: Path) -> None:
    (entry,) = stored(tuned.folder)

    key = entry["key"]
    assert isinstance(key, dict)
    assert key.pop("revision").startswith("sha256-")
    assert key == {"model": str(tiny_model), "device": "cpu", "dtype": "float32", "backend": "padded"}
    assert entry["max_batch_tokens"] in (500, 1500)


def test_a_workers_model_then_uses_the_result(tuned: Tuned, tiny_model: Path, caplog: pytest.LogCaptureFixture) -> None:
    settings = settings_for(tiny_model, tuned.folder)
    (entry,) = stored(tuned.folder)

    with caplog.at_level(logging.INFO):
        scorer = load_served_model(resolve_classifier(str(tiny_model), None), settings)

    assert scorer.max_batch_tokens == entry["max_batch_tokens"]
    assert f"Using batches of {entry['max_batch_tokens']} tokens, which `worker tune` found best" in caplog.text
    assert scorer.score(["A text."]).errors == {}


def test_it_measures_every_passage_with_every_label(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    labels, most, stride = ["food, drink", "code"], 64, 16
    texts = ["Light becomes sugar. " * 40, "Buy now!", "A list is a sequence.", " ", "A sentence of some words. " * 90]
    model = nli_classifier(tmp_path / "nli", "BERT")
    pq.write_table(pa.table({"text": texts}), tmp_path / "rows.parquet")
    (tmp_path / "labels.txt").write_text("\n".join(labels))
    tokenizer = AutoTokenizer.from_pretrained(model)
    room = most - max(len(tokenizer("", f"This example is {label}.")["input_ids"]) for label in labels)
    tokens = tokenizer([text for text in texts if text.strip()], add_special_tokens=False)["input_ids"]
    passages = sum(len({*range(0, max(0, len(ids) - room), stride), max(0, len(ids) - room)}) for ids in tokens)
    given = ("--labels", f"@{tmp_path}/labels.txt", "--max-tokens", str(most), "--passages", f"stride:{stride}:mean")
    trial = ("--model", model, "--input", tmp_path / "rows.parquet", *SHORT, *BUDGETS, "--output", "none")

    assert tune(*trial, *given, state_dir=tmp_path, monkeypatch=monkeypatch) == 0

    assert passages > 4
    assert f"\n4 texts: {2 * passages} sequences with " in capsys.readouterr().out


@pytest.mark.slow
def test_the_batch_size_experiment_of_zero_shot_has_both_curves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    model = nli_classifier(tmp_path / "nli", "BART")
    options = ("--dtype", "float32", "--rows", "3", "--repeats", "1", "--budgets", "512", "--reference")
    labels = ("--labels", "climate change,food,code", "--output", tmp_path / "curve.png")

    assert tune("--model", model, *options, *labels, state_dir=tmp_path, monkeypatch=monkeypatch) == 0

    lines = capsys.readouterr().out.splitlines()
    assert [line.split("  ")[0] for line in lines[1:3]] == ["512 tokens", "pipeline, 5 rows"]
    assert any(line.startswith("3 texts: 9 sequences with ") for line in lines)
    assert (tmp_path / "curve.png").read_bytes().startswith(b"\x89PNG")


def test_a_result_against_the_users_setting_is_not_used(tuned: Tuned, tiny_model: Path) -> None:
    asked_for = settings_for(tiny_model, tuned.folder, max_batch_tokens=777)

    served = load_served_model(resolve_classifier(str(tiny_model), None), asked_for)

    assert served.max_batch_tokens == 777


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--model", "one,two"), "`worker tune` tries one model"),
        (("--passages", "head+tail", "--reference"), "The plain pipeline takes neither --passages nor"),
        (("--max-tokens", "100000"), "The model takes 3 to 512 tokens, not 100000. Choose another --max-tokens"),
        (("--labels", "a,b"), "cannot choose from --labels: none of its outputs is called entailment"),
        (("--output", "/nowhere/curve.png"), "worker: Cannot write the chart to /nowhere/curve.png"),
    ],
)
def test_a_users_mistake_is_one_line_and_exit_code_2(
    tiny_model: Path,
    shards: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    options: tuple[str, ...],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)

    code = tune("--model", tiny_model, "--input", shards, *options, state_dir=tmp_path, monkeypatch=monkeypatch)

    captured = capsys.readouterr()
    assert code == 2
    assert re.search(message, captured.err.splitlines()[-1])
    assert "Traceback" not in captured.err
    assert captured.out == ""
    assert not list(tmp_path.iterdir())
