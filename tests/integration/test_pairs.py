"""A run scores pairs of texts, as rerankers do: two columns of a row."""

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from transformers import pipeline

import shardsift
from fleet.errors import UsageError
from fleet.ledger import Ledger
from producer.planning.options import RunOptions
from producer.planning.plan import plan_run
from support.outputs import published_rows
from support.small_run import publish
from worker.scoring.load import load_scorer

pytestmark = pytest.mark.usefixtures("one_thread")


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
