"""From Reddit to labels: posts are collected from a local Reddit and labelled by a small model, with our commands and example."""

import runpy
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from transformers import pipeline

import shardsift
from support.nli import nli_classifier
from support.outputs import published_rows
from support.pages import ROOT
from support.reddit_server import RedditServer, refusal, serving_reddit

TASK = "zero-shot-classification"
OF_BFLOAT16 = 0.03  # which a run takes by default on a CPU that is fast with it

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture
def reddit() -> Iterator[RedditServer]:
    with serving_reddit() as server:
        server.add("technology", 9)
        server.add("climate", 7)
        server.subreddits["secret"] = refusal(403, "private")
        yield server


@pytest.mark.slow
def test_the_example_labels_what_reddit_has(
    reddit: RedditServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The labels and scores are those of the pipeline over title and text, and every post is there once."""
    model = nli_classifier(tmp_path / "nli", "BERT")
    settings = {
        **reddit.environment(tmp_path / "config"),
        "SHARDSIFT_STATE_DIR": str(tmp_path / "state"),
        "SHARDSIFT_PARITY_ROWS": "0",
        "HF_HUB_OFFLINE": "1",
    }
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("REDIS_URL", raising=False)
    monkeypatch.setattr(
        sys, "argv", ["reddit_zero_shot.py", "technology,secret,climate", str(tmp_path / "study"), str(model)]
    )

    with pytest.raises(SystemExit) as end:
        runpy.run_path(str(ROOT / "examples/reddit_zero_shot.py"), run_name="__main__")

    assert end.value.code == 0
    labels = ["climate change", "technology", "health", "politics"]
    posts = pq.read_table(tmp_path / "study/posts.parquet")
    kept = published_rows(tmp_path / "study/labelled")
    assert kept.select(posts.schema.names).equals(posts)
    texts = ["\n\n".join(filter(None, [row["title"], row["selftext"]])) for row in posts.to_pylist()]
    found = [
        dict(zip(one["labels"], one["scores"], strict=True)) for one in pipeline(TASK, model=str(model))(texts, labels)
    ]
    chosen = [scores[label] for scores, label in zip(found, kept["topic_label"].to_pylist(), strict=True)]
    assert chosen == pytest.approx([max(scores.values()) for scores in found], abs=OF_BFLOAT16)
    assert chosen == pytest.approx(kept["topic_score"].to_pylist(), abs=OF_BFLOAT16)
    assert shardsift.verify(tmp_path / "study/labelled", source=tmp_path / "study/posts.parquet").is_sound
    shown = capsys.readouterr().out
    assert "published" in shown
    assert [line.split()[0] for line in shown.splitlines()[-2:]] == ["climate", "technology"]
