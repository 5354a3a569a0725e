"""Pairs of texts, as rerankers score them: two columns of a row, with the scores of transformers' pipeline."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from transformers import pipeline

import shardsift
from fleet.errors import UsageError
from fleet.ledger import Ledger
from fleet.run.text import pairs
from producer.planning.options import RunOptions
from producer.planning.plan import plan_run
from support.families import FAMILIES, family_classifier
from support.outputs import published_rows
from support.parity import assert_close
from support.small_run import publish
from worker.scoring import Reading
from worker.scoring.load import load_scorer
from worker.scoring.parity_trial import sample_texts

pytestmark = pytest.mark.usefixtures("one_thread")
FIRSTS = [*sample_texts(12, seed=1), "short", "a </s> [SEP] b", "long " * 900, "x"]
EVERYDAY = "BERT", "GPT-2"
SECONDS = ["what is a list?", *sample_texts(11, seed=2), "z", "c [SEP] </s>", "longer " * 1200, "y " * 600]


@pytest.mark.parametrize(
    "family",
    [name if name in EVERYDAY else pytest.param(name, marks=pytest.mark.slow) for name in FAMILIES],
)
def test_scores_are_the_pipelines(family: str, tmp_path: Path) -> None:
    model = family_classifier(family, tmp_path / "model", labels=3)
    classify = pipeline("text-classification", model=str(model), device="cpu", function_to_apply="none", top_k=None)
    together = [{"text": first, "text_pair": second} for first, second in zip(FIRSTS, SECONDS, strict=True)]
    found = [{one["label"]: one["score"] for one in classify(pair, truncation=True)} for pair in together]

    scorer = load_scorer(str(model), "float32", device="cpu", parity_rows=0).reading(Reading(pairs=True))
    texts = pairs(pa.array(FIRSTS, pa.large_string()), pa.array(SECONDS, pa.large_string()))
    values = scorer.score_encoded(scorer.encode(texts)).values

    expected = np.array([[one[f"LABEL_{number}"] for number in range(3)] for one in found])
    assert_close(values, expected, task="pairs", family=family)
    assert expected.std(axis=0).min() > 0.05


@pytest.fixture
def options(tiny_model: Path, tmp_path: Path) -> RunOptions:
    rows = {"query": ["q one", None, "q three", " "], "text": ["a text", "another", None, "a third"], "n": [1, 2, 3, 4]}
    (tmp_path / "in").mkdir()
    pq.write_table(pa.table(rows), tmp_path / "in/a.parquet")
    return RunOptions(
        input_uris=(str(tmp_path / "in"),),
        output_uri=str(tmp_path / "out"),
        models=(str(tiny_model),),
        dtype="float32",
        text_column="query",
        text_pair_column="text",
        keep_all=True,
    )


def test_a_run_scores_the_pairs_of_its_rows(
    options: RunOptions, ledger: Ledger, tiny_model: Path, tmp_path: Path
) -> None:
    scorer = load_scorer(str(tiny_model), "float32", device="cpu", parity_rows=0)
    publish(ledger, scorer, options, scratch=tmp_path / "scratch")

    scores = published_rows(tmp_path / "out", "scores").to_pylist()
    (wanted,) = pipeline("text-classification", model=str(tiny_model), function_to_apply="none")(
        [{"text": "q one", "text_pair": "a text"}]
    )
    assert scores[0]["score"] == pytest.approx(wanted["score"], abs=1e-4)
    assert [line["error"] for line in scores] == [None, "null text", "null text", "blank text"]
    assert published_rows(tmp_path / "out")["n"].to_pylist() == [1]
    assert "| Scored text | `query` paired with `text` |" in (tmp_path / "out/README.md").read_text()
    assert shardsift.verify(tmp_path / "out").faults == ()


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"text_pair_column": "body"}, r'no column "body"; it has: query, text, n. Name one with --text-pair-column'),
        ({"text_pair_column": "n"}, 'The column "n" holds int64, not text'),
        ({"passages": "head+tail"}, "--text-pair-column does not go with --passages"),
    ],
)
def test_what_cannot_be_paired_is_refused(options: RunOptions, changes: dict[str, str], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        plan_run(replace(options, **changes))
