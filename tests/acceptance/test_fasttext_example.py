"""examples/fasttext_scorer: its model is trained, and scores texts and a whole run with Redis, a worker and a finalizer."""

import hashlib
import os
from collections.abc import Iterator
from contextlib import chdir
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import shardsift
from shardsift.scorers import Model
from support.outputs import published_rows
from support.packages import ROOT, installed
from support.processes import run_command

EXAMPLE = ROOT / "examples/fasttext_scorer"
TEXTS = ["The derivative\nof a sum.", "", "buy now cheap offer", None, "buy\r\n\tcheap\x00now", "x" * 100_000]

pytestmark = pytest.mark.skipif(
    find_spec("fasttext") is None and os.environ.get("CI") != "true", reason="fasttext-community is not installed"
)


def train(file: Path) -> Path:
    """What the README says, in a process of its own."""
    done = run_command("python", EXAMPLE / "train.py", file, environment={}, seconds=60)
    assert (done.returncode, done.stderr) == (0, "")
    return file


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(tmp_path_factory.mktemp("fasttext") / "model.bin")


@pytest.fixture(scope="module", autouse=True)
def fasttext_scorer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with installed(EXAMPLE, tmp_path_factory.mktemp("site")):
        yield


def resolve(file: Path, revision: str | None = None) -> Model:
    from fasttext_scorer import KIND

    return KIND.resolve(str(file), revision)


def predicted(model: Path, text: str) -> list[float]:
    """fastText's own probabilities of spam and good."""
    import fasttext

    labels, probabilities = fasttext.load_model(str(model)).predict(text, k=-1)
    found = dict(zip(labels, probabilities, strict=True))
    return [found["__label__spam"], found["__label__good"]]


def test_the_model_is_a_file_at_its_digest_with_its_own_labels(model: Path) -> None:
    import fasttext

    digest = hashlib.sha256(model.read_bytes()).hexdigest()

    found = resolve(model)

    assert found == Model(name=str(model), revision=f"sha256-{digest}", labels=("spam", "good"))
    assert [f"__label__{label}" for label in found.labels] == fasttext.load_model(str(model)).labels
    assert resolve(model, found.revision) == found


def test_the_scores_are_those_of_fasttext_in_the_order_of_the_labels(model: Path) -> None:
    scorer = shardsift.load_scorer(model, scorer="fasttext")

    scores = scorer.score(TEXTS)

    lines = [text.replace("\n", " ") for text in TEXTS if text]
    assert scorer.labels == ("spam", "good")
    assert scores.dtype == np.float32
    assert np.isnan(scores[[1, 3]]).all()
    assert scores[[0, 2, 4, 5]] == pytest.approx(np.array([predicted(model, line) for line in lines], np.float32))
    assert scorer.table(TEXTS)["error"].to_pylist() == [None, "blank text", None, "null text", None, None]


@pytest.mark.slow  # ten seconds of processes
@pytest.mark.usefixtures("on_machine")
def test_a_whole_run_with_redis_a_worker_and_a_finalizer(model: Path, tmp_path: Path) -> None:
    texts = [
        f"The value of argument {row} is\nan expression." if row % 3 else f"cheap offer {row}" for row in range(40)
    ]
    (tmp_path / "shards").mkdir()
    for number in range(2):
        pq.write_table(pa.table({"text": texts[20 * number :][:20]}), tmp_path / f"shards/{number}.parquet")
    with chdir(tmp_path):
        ended = shardsift.run(
            input="./shards/*.parquet",
            output="./good",
            scorer="fasttext",
            model=model,
            where="score_good >= 0.5",
            workers=1,
            progress=False,
        )
        checked = shardsift.verify("./good", input="./shards/*.parquet")

    expected = shardsift.score(texts, model, scorer="fasttext")
    scores, kept = published_rows(tmp_path / "good", "scores"), published_rows(tmp_path / "good")
    assert ended.word == "published"
    assert checked.is_sound
    assert 0 < len(kept) < len(texts)
    assert kept["text"].to_pylist() == [text for text, (_, good) in zip(texts, expected, strict=True) if good >= 0.5]
    assert np.array_equal(np.array(scores["score_logits"].to_pylist(), np.float32), expected)
    assert set(kept["label"].to_pylist()) == {"good"}
    assert kept["score_good"].to_pylist() == kept["score"].to_pylist()
