"""`shardsift.score` and `load_scorer`: what a notebook gets, and that it is what a run publishes."""

import logging
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from transformers import pipeline
from transformers.utils import logging as transformers_logging

import shardsift
from shardsift import LoadedScorer
from support.models import tiny_classifier
from support.nli import nli_classifier

pytestmark = pytest.mark.usefixtures("one_thread")
EACH_LABEL = ["score_LABEL_0", "score_LABEL_1", "score_LABEL_2"]
TEXTS = ["Light becomes sugar.", "", None, " \n", "Buy now!", "a" * 5000]


@pytest.fixture(scope="module")
def scorer(tiny_model: Path) -> LoadedScorer:
    return shardsift.load_scorer(tiny_model, dtype="float32", device="cpu", parity_rows=4)


@pytest.fixture(scope="module")
def three_labels(tmp_path_factory: pytest.TempPathFactory) -> LoadedScorer:
    model = tiny_classifier(tmp_path_factory.mktemp("models") / "three", labels=3)
    return shardsift.load_scorer(model, dtype="float32", parity_rows=0)


def test_shapes_follow_the_labels(scorer: shardsift.LoadedScorer, three_labels: shardsift.LoadedScorer) -> None:
    assert (scorer.score(TEXTS).shape, scorer.score([]).shape) == ((6,), (0,))
    assert scorer.score(TEXTS).dtype == np.float32
    assert (three_labels.score(TEXTS).shape, three_labels.score([]).shape) == ((6, 3), (0, 3))
    assert three_labels.labels == ("LABEL_0", "LABEL_1", "LABEL_2")
    assert three_labels.table([]).column_names == ["score", "label", *EACH_LABEL, "error"]


def test_texts_beyond_a_window_keep_their_places(scorer: LoadedScorer) -> None:
    """The first window is of blank texts, which cost nothing."""
    texts = [" "] * 8192 + ["Light becomes sugar.", "Buy now!"]

    scores = scorer.score(iter(texts))

    assert len(scores) == len(texts)
    assert np.array_equal(scores[8192:], scorer.score(texts[8192:]))


def test_an_iterator_is_read_in_the_thread_that_asks(scorer: LoadedScorer) -> None:
    """The rows of a SQLite cursor cannot be read in another."""
    with closing(sqlite3.connect(":memory:")) as database:
        database.execute("create table pages (text)")
        database.executemany("insert into pages values (?)", [(text,) for text in TEXTS])

        scores = scorer.score(text for (text,) in database.execute("select text from pages order by rowid"))

    assert np.array_equal(scores, scorer.score(TEXTS), equal_nan=True)


def test_score_takes_a_scorer_or_a_model_with_its_options(scorer: shardsift.LoadedScorer, tiny_model: Path) -> None:
    loaded = shardsift.score(TEXTS, scorer)
    by_name = shardsift.score(TEXTS, model=tiny_model, dtype="float32", parity_rows=0)

    assert np.array_equal(loaded, by_name, equal_nan=True)
    with pytest.raises(shardsift.UsageError, match="is loaded already. Pass dtype to load_scorer"):
        shardsift.score(TEXTS, scorer, dtype="float32")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"device": "gpu"}, r"^device='gpu' is wrong: 'gpu' is not one of auto, cpu"),
        ({"device": "cuda:7"}, "There is no device cuda:7"),
        ({"scorer": "nothing"}, "There is no scorer 'nothing' here"),
    ],
)
def test_a_wrong_option_is_told_in_the_words_of_python(options: dict[str, Any], says: str, tiny_model: Path) -> None:
    with pytest.raises(shardsift.UsageError, match=says):
        shardsift.load_scorer(tiny_model, **{"parity_rows": 0, **options})


def test_settings_come_from_the_environment_unless_given(tiny_model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHARDSIFT_MAX_BATCH_TOKENS", "333")
    monkeypatch.setenv("SHARDSIFT_PARITY_ROWS", "0")
    monkeypatch.setenv("SHARDSIFT_MODEL", "a worker's, not a notebook's")

    by_environment = shardsift.load_scorer(tiny_model)
    given = shardsift.load_scorer(tiny_model, max_batch_tokens=444)

    assert (by_environment.info.max_batch_tokens, given.info.max_batch_tokens) == (333, 444)


@pytest.fixture
def own_logging() -> Iterator[None]:
    before = transformers_logging.get_verbosity()
    transformers_logging.set_verbosity_info()
    transformers_logging.enable_progress_bar()
    yield
    transformers_logging.set_verbosity(before)


@pytest.mark.usefixtures("own_logging")
def test_a_notebook_keeps_its_logging_when_a_model_was_loaded(tiny_model: Path) -> None:
    levels = {name: logging.getLogger(name).level for name in ("torchao", "torch.utils._pytree")}

    shardsift.load_scorer(tiny_model, parity_rows=0)

    assert transformers_logging.get_verbosity() == logging.INFO
    assert transformers_logging.is_progress_bar_enabled()
    assert {name: logging.getLogger(name).level for name in levels} == levels
    assert "SHARDSIFT_MODEL" not in os.environ


def test_a_user_chooses_from_labels_of_their_own(tmp_path: Path) -> None:
    model = nli_classifier(tmp_path / "nli", "RoBERTa")
    labels = ["climate change", "food, drink"]
    scorer = shardsift.load_scorer(model, dtype="float32", device="cpu", parity_rows=0)
    found = pipeline("zero-shot-classification", model=str(model))(TEXTS[:1], labels, hypothesis_template="About {}.")

    scores = scorer.score(TEXTS, labels=labels, hypothesis_template="About {}.")
    table = scorer.table(TEXTS, labels=labels, hypothesis_template="About {}.")

    expected = dict(zip(found[0]["labels"], found[0]["scores"], strict=True))
    assert scores.shape == (len(TEXTS), 2)
    assert scores[0] == pytest.approx([expected[label] for label in labels], abs=1e-4)
    assert np.isnan(scores[1:4]).all()
    assert table.column_names == ["score", "label", "score_climate_change", "score_food_drink", "error"]
    assert scorer.score(TEXTS, labels=labels[:1]).shape == (len(TEXTS),)
    again = shardsift.score(TEXTS[:1], scorer, labels=labels, hypothesis_template="About {}.")
    assert again == pytest.approx(scores[:1], abs=1e-5)


@pytest.mark.parametrize(
    ("options", "error", "says"),
    [
        ({"task": "zero-shot"}, TypeError, "There is no option 'task'. The options are: max_tokens, "),
        ({"labels": ["sport"]}, shardsift.UsageError, "cannot choose from labels: none of its outputs is called ent"),
        ({"passages": "tail"}, shardsift.UsageError, r"^passages must be head, .*, not 'tail'\.$"),
    ],
)
def test_wrong_arguments_are_refused_in_the_words_of_python(
    options: dict[str, Any], error: type[Exception], says: str, three_labels: LoadedScorer
) -> None:
    with pytest.raises(error, match=says):
        three_labels.score(TEXTS, **options)


def test_a_share_of_one_output_is_a_usage_error(scorer: LoadedScorer) -> None:
    with pytest.raises(shardsift.UsageError, match="every score of a model with one output 1"):
        scorer.score(TEXTS, function_to_apply="softmax")
