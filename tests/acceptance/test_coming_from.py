"""examples/coming_from: each way that users come from has the scores of ours, and the page names every file."""

import json
import re
from pathlib import Path
from typing import Any

import dask
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from support.models import tiny_classifier
from support.nli import nli_classifier
from support.pages import blocks_of
from support.processes import call_script

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "examples/coming_from"
PAGE = "docs/coming_from.md"
POSTS = [
    "Light becomes sugar.",
    "Buy now!",
    None,
    "  ",
    "The sum of the derivatives is the derivative of the sum. " * 9,
]

pytestmark = pytest.mark.usefixtures("one_thread", "on_machine")


def run(name: str, model: Path, folder: Path, texts: list[str | None]) -> list[dict[str, Any]]:
    """The lines of an example's report."""
    pq.write_table(pa.table({"body": texts}), folder / "texts.parquet")
    options = ("--model", model, "--input", folder / "texts.parquet", "--text-column", "body", "--rounds", 1)
    assert call_script(FOLDER / name, *options, "--report", folder / "report.json") == 0
    lines: list[dict[str, Any]] = json.loads((folder / "report.json").read_text())
    return lines


def ways(lines: list[dict[str, Any]]) -> list[str]:
    return [line["way"] for line in lines]


def test_the_dask_recipe(tiny_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = run("dask_recipe.py", tiny_model, tmp_path, POSTS)

    assert ways(lines) == ["Dask recipe", "shardsift", "shardsift"]
    assert lines[0]["ratio"] == 1
    assert lines[1]["error"] < 1e-4
    shown = capsys.readouterr().out
    assert shown.startswith(f"3 texts, {tiny_model}, the fastest of 1 rounds\n")
    assert re.search(r"^Dask recipe +float32 +[\d.,]+ rows/s +1\.00 x  scores within 0$", shown, re.MULTILINE)


@pytest.mark.slow
def test_apply_over_a_zero_shot_pipeline(tmp_path: Path) -> None:
    lines = run("apply_over_a_pipeline.py", nli_classifier(tmp_path / "nli", "BERT"), tmp_path, POSTS)

    assert ways(lines) == [".apply", "pipeline, batches of 20", "shardsift", "shardsift"]
    assert max(line["error"] for line in lines[:3]) < 1e-4


@pytest.mark.slow
def test_a_sentiment_pipeline_in_half_precision(tmp_path: Path) -> None:
    lines = run("sentiment.py", tiny_classifier(tmp_path / "model", labels=2), tmp_path, POSTS)

    assert [line["dtype"] for line in lines[:3]] == ["bfloat16", "float32", "float32"]
    assert lines[0]["error"] > lines[2]["error"]
    assert lines[2]["error"] < 1e-4


def test_the_server_of_finepdfs(tiny_model: Path, tmp_path: Path) -> None:
    texts = ["short", *(" ".join(f"word{row}-{number}" for number in range(120 * row)) for row in range(1, 4))]

    lines = run("finepdfs_server.py", tiny_model, tmp_path, texts)

    assert ways(lines) == ["server, batches of 4", "server, batches of 4", "shardsift", "shardsift"]
    assert lines[2]["error"] < 1e-4


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:The inplace keyword:pandas.errors.Pandas4Warning")  # Dask's
def test_the_python_of_the_page_runs(tmp_path: Path, tiny_model: Path) -> None:
    """Both sides of it: what users have, and what they type instead."""
    texts = [text for text in POSTS if text]
    (tmp_path / "fineweb").mkdir()
    pq.write_table(pa.table({"text": texts}), tmp_path / "fineweb/0.parquet")
    pq.write_table(pa.table({"selftext": texts}), tmp_path / "posts.parquet")
    code = "\n".join(block.text for block in blocks_of(PAGE) if block.language == "python" and not block.reason)
    here = {
        "hf://datasets/HuggingFaceFW/fineweb/data/CC-MAIN-2024-10": tmp_path / "fineweb",
        "hf://datasets/me/fineweb-edu": tmp_path / "kept",
        "posts.parquet": tmp_path / "posts.parquet",
        "HuggingFaceFW/fineweb-edu-classifier": tiny_model,
        "facebook/bart-large-mnli": nli_classifier(tmp_path / "nli", "BERT"),
        "distilbert/distilbert-base-uncased-finetuned-sst-2-english": tiny_classifier(tmp_path / "model", labels=2),
        "device=0": "device='cpu'",
        "torch.float16": "torch.float32",
    }
    for text, instead in here.items():
        assert text in code
        code = code.replace(text, str(instead))
    names: dict[str, Any] = {}

    with dask.config.set(scheduler="synchronous"):
        exec(compile(code, PAGE, "exec"), names)

    scores = names["df"]["score"].compute()
    assert names["table"]["label"].to_pylist()[0] == names["posts"]["label"][0]
    assert len(pd.read_parquet(tmp_path / "kept")) == (scores >= 3).sum()
