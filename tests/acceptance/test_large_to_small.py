"""From a large model to a small one: the example with a local Hub and tiny models."""

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from transformers import AutoModelForSequenceClassification

import shardsift
from hubserver import HubServer
from support.models import tiny_classifier
from support.nli import nli_classifier
from support.odd_texts import real_texts
from support.outputs import published_rows
from support.pages import ROOT
from support.processes import run_command

DATASET = "ada/topics"
TEXTS = 70
OF_BFLOAT16 = 0.03  # which a run takes by default on a CPU that is fast with it
STEPS = ["label", "train", "score", "all"]

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture
def hub() -> Iterator[HubServer]:
    with HubServer(xet=False) as hub:
        yield hub
        assert hub.handler_errors == []


@pytest.mark.slow  # it starts two runs, each with Redis, a worker and a finalizer
def test_the_example_makes_a_classifier_that_scores(hub: HubServer, machine: dict[str, str], tmp_path: Path) -> None:
    environment = {
        **hub.client_env(tmp_path / "home", hub.token("ada")),
        **machine,
        "HF_HUB_OFFLINE": "0",
        "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
    }
    bodies = real_texts(TEXTS)  # so different that a random model does not give them all one label
    rows = [{"title": f"Post {n}", "selftext": body if n % 3 else ""} for n, body in enumerate(bodies)]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "posts.parquet")
    options = {
        "--input": tmp_path / "posts.parquet",
        "--text-column": "title,selftext",
        "--labelled": f"hf://datasets/{DATASET}",
        "--large-model": nli_classifier(tmp_path / "nli", "BERT"),
        "--base-model": tiny_classifier(tmp_path / "base"),
        "--least-score": 0,  # a random model is sure of nothing
        "--folder": tmp_path / "study",
    }

    arguments = [str(part) for pair in options.items() for part in pair]
    example = ROOT / "examples/large_to_small.py"
    done = run_command("python", example, *arguments, environment=environment, seconds=280, folder=tmp_path)

    assert done.returncode == 0, done.stderr
    assert [line.split()[0] for line in done.stdout.splitlines() if re.fullmatch(r"\w+ +\d+\.\d s", line)] == STEPS
    data = [path for path in hub.files(DATASET) if path.startswith("data/")]
    labelled = pq.read_table(pa.BufferReader(hub.read(DATASET, data[0])))
    assert labelled.select(["title", "selftext"]).to_pylist() == rows
    learned = pq.read_table(tmp_path / "study/learned.parquet")
    model = AutoModelForSequenceClassification.from_pretrained(tmp_path / "study/classifier")
    assert set(model.config.label2id) == set(learned["label"].to_pylist()) <= set(labelled["topic_label"].to_pylist())
    scored = published_rows(tmp_path / "study/scored")
    assert shardsift.verify(tmp_path / "study/scored", input=tmp_path / "posts.parquet").is_sound
    texts = ["\n\n".join(filter(None, row.values())) for row in rows]
    assert set(learned["text"].to_pylist()) <= set(texts)
    table = shardsift.load_scorer(tmp_path / "study/classifier", parity_rows=0).table(texts)
    assert table["score"].to_pylist() == pytest.approx(scored["topic_score"].to_pylist(), abs=OF_BFLOAT16)
    large, small = (table["topic_label"].to_pylist() for table in (labelled, scored))
    same = sum(one == other for one, other in zip(large, small, strict=True))
    assert f"the same label for {same} of {TEXTS} texts. The small one learned from {learned.num_rows}." in done.stdout
