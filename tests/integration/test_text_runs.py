"""Runs over joined columns, templates, windows and pairs publish the scores of the texts that a user would have put together."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import shardsift
from shardsift.fleet.errors import ShardError, UsageError
from shardsift.producer.planning.plan import plan_run
from shardsift.worker.scoring import ScorerInfo, Scores
from support.outputs import published_rows
from support.small_run import Runs

pytestmark = pytest.mark.usefixtures("one_thread")
TITLES = ["On light", None, "Buy", "", "Long"] * 4
BODIES = ["Light becomes sugar.", "Only a body.", None, " ", "word " * 300] * 4


@pytest.fixture(scope="module")
def scorer(tiny_model: Path) -> shardsift.LoadedScorer:
    return shardsift.load_scorer(tiny_model, dtype="float32", device="cpu", parity_rows=0)


@pytest.fixture
def posts(tmp_path: Path) -> Path:
    (tmp_path / "posts").mkdir()
    table = pa.table({"title": TITLES, "selftext": BODIES, "ups": pa.array(range(20))})
    pq.write_table(table, tmp_path / "posts/a.parquet")
    return tmp_path / "posts"


@pytest.fixture
def text_runs(runs: Runs, scorer: shardsift.LoadedScorer) -> Runs:
    return replace(runs, scorer=scorer.scorer)


JOINED = ["On light\n\nLight becomes sugar.", "Only a body.", "Buy", "", "Long\n\n" + "word " * 300]
FILLED = [f"{title or ''}\n{{ups}}: {body or ''}" for title, body in zip(TITLES, BODIES, strict=True)]


@pytest.mark.parametrize(
    ("column", "reading", "texts", "said"),
    [
        ("title,selftext", {}, JOINED * 4, "`title` and `selftext`"),
        (
            r"{title}\n{ups}: {selftext}",
            {"max_tokens": 16},
            FILLED,
            r"`{title}\n{ups}: {selftext}`, at most 16 tokens",
        ),
        (
            "selftext",
            {"max_tokens": 32, "passages": "head+tail:mean"},
            BODIES,
            "`selftext`, at most 32 tokens, in passages (head+tail), whose logits are pooled by mean",
        ),
    ],
    ids=["joined", "template", "windows"],
)
def test_scores_are_those_of_the_texts_as_a_user_puts_them_together_and_the_card_says_what_was_read(
    column: str,
    reading: dict[str, Any],
    texts: list[str | None],
    said: str,
    text_runs: Runs,
    posts: Path,
    scorer: shardsift.LoadedScorer,
) -> None:
    out = text_runs.publish(posts, **reading, text_column=column)

    whole = [text and text.replace("{ups}", str(row)) for row, text in enumerate(texts)]
    check_scores(out, scorer.table(whole, **reading))
    assert np.array_equal(scores_in(out), scorer.score(whole, **reading), equal_nan=True)
    assert f"| Scored text | {said} |" in (out / "README.md").read_text()


def test_a_run_scores_the_pairs_of_its_rows(text_runs: Runs, posts: Path, scorer: shardsift.LoadedScorer) -> None:
    out = text_runs.publish(posts, text_column="title", text_pair_column="selftext")

    table = scorer.table(TITLES, text_pairs=BODIES)
    check_scores(out, table)
    assert table["error"].to_pylist()[:5] == [None, "null text", "null text", "blank text", None]
    assert published_rows(out)["ups"].to_pylist() == [0, 4, 5, 9, 10, 14, 15, 19]
    assert "| Scored text | `title` paired with `selftext` |" in (out / "README.md").read_text()


def check_scores(output: Path, table: pa.Table) -> None:
    """Check that a sound output has the scores and errors of a table."""
    published = published_rows(output, "scores")
    assert published["error"].to_pylist() == table["error"].to_pylist()
    assert np.array_equal(scores_in(output), table["score"].to_numpy(), equal_nan=True)
    assert shardsift.verify(output).faults == ()


def scores_in(output: Path) -> Any:
    return published_rows(output, "scores")["score"].to_numpy()


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"text_pair_column": "body"}, r'no column "body"; it has: title, selftext, ups. Name one with --text-pair-'),
        (
            {"text_pair_column": "selftext", "passages": "head+tail"},
            "--text-pair-column does not go with --passages",
        ),
    ],
)
def test_what_cannot_be_paired_is_refused(text_runs: Runs, posts: Path, changes: dict[str, str], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        plan_run(text_runs.options(posts, text_column="title", **changes))


def test_a_scorer_that_reads_in_its_own_way_fails_the_shard_with_the_reason(text_runs: Runs, posts: Path) -> None:
    class Own:
        info = ScorerInfo()

        def encode(self, texts: pa.Array) -> int:
            return len(texts)

        def score_encoded(self, encoded: int, go_on: object, earlier: object) -> Scores:
            return Scores(values=np.zeros((encoded, 1), np.float32))

    with pytest.raises(
        ShardError, match="reads texts in its own way. Leave out --labels, --max-tokens, --passages and --text-pair"
    ):
        replace(text_runs, scorer=Own()).publish(posts, text_column="selftext", max_tokens=8)
