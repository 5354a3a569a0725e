"""The study of Reddit: posts are collected from a local Reddit with the real PRAW and labelled by a small model."""

import json
import runpy
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from transformers import pipeline

import shardsift
from support.nli import nli_classifier
from support.outputs import published_rows
from support.pages import ROOT
from support.reddit_server import RedditServer, serving_reddit

TASK = "zero-shot-classification"
LABELS = ["climate change", "technology", "health", "politics"]
OF_BFLOAT16 = 0.03  # which a run takes by default on a CPU that is fast with it
EXAMPLE = str(ROOT / "examples/reddit/study.py")

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture
def reddit() -> Iterator[RedditServer]:
    with serving_reddit() as server:
        yield server


@pytest.fixture(autouse=True)
def settings(reddit: RedditServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {
        **reddit.environment(tmp_path / "config"),
        "SHARDSIFT_STATE_DIR": str(tmp_path / "state"),
        "SHARDSIFT_PARITY_ROWS": "0",
        "HF_HUB_OFFLINE": "1",
    }
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("REDIS_URL", raising=False)
    monkeypatch.setattr("praw.config.Config.CONFIG", None)  # praw.ini is read once a process


def test_posts_are_collected_page_by_page_without_subreddits_that_reddit_refuses(
    reddit: RedditServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    reddit.add("technology", 240)
    reddit.add("climate", 2, title="half a \ud83d pair")
    reddit.private.add("secret")

    runpy.run_path(EXAMPLE)["collect"](["technology", "secret", "nowhere", "climate"], tmp_path / "posts.jsonl")

    posts = [json.loads(line) for line in (tmp_path / "posts.jsonl").read_text().splitlines()]
    assert [post["id"] for post in posts[:240]] == [f"technology{number}" for number in range(240, 0, -1)]
    assert [(post["title"], post["votes"]) for post in posts[240:]] == [("half a ? pair", 20), ("half a ? pair", 10)]
    assert reddit.pages_asked == ["technology"] * 3 + ["secret", "nowhere", "climate"]
    left_out = capsys.readouterr().err.splitlines()
    assert [line.split(":")[0] for line in left_out] == ["r/secret is left out", "r/nowhere is left out"]


@pytest.mark.slow
def test_the_study_labels_what_reddit_has(
    reddit: RedditServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The labels and scores are those of the pipeline over title and text, and every post is there once."""
    reddit.add("technology", 9)
    reddit.add("climate", 7)
    model, study = nli_classifier(tmp_path / "nli", "BERT"), tmp_path / "study"
    monkeypatch.setattr(sys, "argv", ["study.py", "technology,climate", str(study), str(model)])

    with pytest.raises(SystemExit) as end:
        runpy.run_path(EXAMPLE, run_name="__main__")

    assert end.value.code == 0
    posts = [json.loads(line) for line in (study / "posts.jsonl").read_text().splitlines()]
    kept = published_rows(study / "labelled")
    assert kept.select(list(posts[0])).to_pylist() == posts
    texts = ["\n\n".join(filter(None, [post["title"], post["selftext"]])) for post in posts]
    found = [
        dict(zip(one["labels"], one["scores"], strict=True)) for one in pipeline(TASK, model=str(model))(texts, LABELS)
    ]
    chosen = [scores[label] for scores, label in zip(found, kept["label"].to_pylist(), strict=True)]
    assert chosen == pytest.approx([max(scores.values()) for scores in found], abs=OF_BFLOAT16)
    assert chosen == pytest.approx(kept["score"].to_pylist(), abs=OF_BFLOAT16)
    assert shardsift.verify(study / "labelled", source=study / "posts.jsonl").is_sound
    shown = capsys.readouterr().out
    assert "published" in shown
    assert [line.split()[0] for line in shown.splitlines()[-2:]] == ["climate", "technology"]
