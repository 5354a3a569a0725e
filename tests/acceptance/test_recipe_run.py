"""`producer run --model WebOrganizer/TopicClassifier`: by its name alone, from a Hub whose code is never run."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from transformers import AutoTokenizer, PreTrainedConfig

import shardsift
from hubserver import HubServer
from support.outputs import published_rows
from support.processes import run_command
from support.repositories import LABELS, REPOSITORIES

MODEL = "WebOrganizer/TopicClassifier"
TEXTS = ["Light becomes sugar.", "Buy now! Limited offer!", "A sentence of some words that repeats. " * 60]
URLS = ["https://example.org/light", "https://shop.example.org", "https://example.org/long"]


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "repository"
    folder.mkdir()
    REPOSITORIES["WebOrganizer"].save(folder)
    for code in ("modeling.py", "configuration.py"):
        (folder / code).write_text('raise RuntimeError("code from the Hub was run")\n')
    return folder


@pytest.fixture
def hub(repository: Path) -> Iterator[HubServer]:
    with HubServer() as hub:
        hub.create_repo(MODEL, "model")
        hub.add_folder(MODEL, repository, repo_type="model")
        yield hub
        assert hub.handler_errors == []


@pytest.fixture
def pages(tmp_path: Path) -> Path:
    pq.write_table(pa.table({"url": URLS, "text": TEXTS}), tmp_path / "pages.parquet")
    return tmp_path / "pages.parquet"


@pytest.mark.slow
def test_a_run_by_name_publishes_the_scores_of_the_card(
    hub: HubServer, repository: Path, pages: Path, machine: dict[str, str], tmp_path: Path
) -> None:
    machine = {**hub.client_env(tmp_path / "home"), **machine, "HF_HUB_OFFLINE": "0"}
    output = tmp_path / "out"

    arguments = ("--input", pages, "--output", output, "--model", MODEL, "--keep-all", "--dtype", "float32")
    done = run_command("producer", "run", *arguments, environment=machine)

    assert done.returncode == 0, done.stderr
    assert f"Recipe of {MODEL}: --text-column '{{url}}\\n\\n{{text}}' --max-tokens 8192" in done.stderr
    tokenizer = AutoTokenizer.from_pretrained(repository, config=PreTrainedConfig())
    read = tokenizer([f"{url}\n\n{text}" for url, text in zip(URLS, TEXTS, strict=True)])["input_ids"]
    logits = [REPOSITORIES["WebOrganizer"].logits(repository, ids) for ids in read]
    expected = np.stack([one.softmax(-1).numpy() for one in logits])
    rows = published_rows(output)
    found = np.stack([rows[f"score_{label}"].to_numpy() for label in LABELS], axis=1)
    assert found == pytest.approx(expected, abs=1e-4)
    assert rows["label"].to_pylist() == [LABELS[best] for best in expected.argmax(axis=1)]
    assert "`{url}\\n\\n{text}`, at most 8,192 tokens" in (output / "README.md").read_text()
    assert shardsift.verify(output, input=pages).faults == ()
