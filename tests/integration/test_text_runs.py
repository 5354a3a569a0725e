"""Runs over joined columns, templates, windows and pairs publish the scores of the texts that a user would have put together."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import shardsift
from shardsift.fleet.errors import ShardError, UsageError
from shardsift.fleet.ledger import Ledger
from shardsift.producer.planning.options import RunOptions
from shardsift.producer.planning.plan import plan_run
from shardsift.worker.scoring import ScorerInfo, Scores
from support.outputs import published_rows
from support.small_run import publish

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
def options(posts: Path, tiny_model: Path, tmp_path: Path) -> dict[str, Any]:
    return {
        "input_uris": (str(posts),),
        "output_uri": str(tmp_path / "out"),
        "models": (str(tiny_model),),
        "dtype": "float32",
        "keep_all": True,
    }


@pytest.mark.parametrize(
    ("column", "reading", "texts", "said"),
    [
        (
            "title,selftext",
            {},
            ["On light\n\nLight becomes sugar.", "Only a body.", "Buy", "", "Long\n\n" + "word " * 300],
            "`title` and `selftext`",
        ),
        (
            r"{title}\n{ups}: {selftext}",
            {"max_tokens": 16},
            [
                "On light\n{ups}: Light becomes sugar.",
                "\n{ups}: Only a body.",
                "Buy\n{ups}: ",
                "\n{ups}:  ",
                "Long\n{ups}: " + "word " * 300,
            ],
            r"`{title}\n{ups}: {selftext}`, at most 16 tokens",
        ),
        (
            "selftext",
            {"max_tokens": 32, "passages": "head+tail:mean"},
            BODIES[:5],
            "`selftext`, at most 32 tokens, in passages (head+tail), whose logits are pooled by mean",
        ),
        (
            "selftext",
            {"max_tokens": 32, "passages": "finepdfs"},
            BODIES[:5],
            "`selftext`, at most 32 tokens, in passages (finepdfs), whose logits are pooled by max",
        ),
    ],
    ids=["joined", "template", "windows", "finepdfs"],
)
def test_scores_are_those_of_the_texts_as_a_user_puts_them_together_and_the_card_says_what_was_read(
    column: str,
    reading: dict[str, Any],
    texts: list[str | None],
    said: str,
    options: dict[str, Any],
    scorer: shardsift.LoadedScorer,
    ledger: Ledger,
    tmp_path: Path,
) -> None:
    run = RunOptions(**options, **reading, text_column=column)
    publish(ledger, scorer.scorer, run, scratch=tmp_path / "scratch")
    published = published_rows(tmp_path / "out", "scores")

    whole = [text and text.replace("{ups}", str(row)) for row, text in enumerate(texts * 4)]
    table = scorer.table(whole, **reading)

    assert published["error"].to_pylist() == table["error"].to_pylist()
    assert np.array_equal(published["score"].to_numpy(), table["score"].to_numpy(), equal_nan=True)
    assert np.array_equal(published["score"].to_numpy(), scorer.score(whole, **reading), equal_nan=True)
    assert shardsift.verify(tmp_path / "out").faults == ()
    assert f"| Scored text | {said} |" in (tmp_path / "out/README.md").read_text()


def test_a_run_scores_the_pairs_of_its_rows(
    options: dict[str, Any], scorer: shardsift.LoadedScorer, ledger: Ledger, tmp_path: Path
) -> None:
    run = RunOptions(**options, text_column="title", text_pair_column="selftext")
    publish(ledger, scorer.scorer, run, scratch=tmp_path / "scratch")
    published = published_rows(tmp_path / "out", "scores")

    table = scorer.table(TITLES, text_pairs=BODIES)

    assert np.array_equal(published["score"].to_numpy(), table["score"].to_numpy(), equal_nan=True)
    assert np.array_equal(published["score"].to_numpy(), scorer.score(TITLES, text_pairs=BODIES), equal_nan=True)
    assert published["error"].to_pylist() == table["error"].to_pylist()
    assert published["error"].to_pylist()[:5] == [None, "null text", "null text", "blank text", None]
    assert published_rows(tmp_path / "out")["ups"].to_pylist() == [0, 4, 5, 9, 10, 14, 15, 19]
    assert "| Scored text | `title` paired with `selftext` |" in (tmp_path / "out/README.md").read_text()
    assert shardsift.verify(tmp_path / "out").faults == ()


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"text_pair_column": "body"}, r'no column "body"; it has: title, selftext, ups. Name one with --text-pair-'),
        ({"text_pair_column": "ups"}, 'The column "ups" holds int64, not text'),
        (
            {"text_pair_column": "selftext", "passages": "head+tail"},
            "--text-pair-column does not go with --passages",
        ),
    ],
)
def test_what_cannot_be_paired_is_refused(options: dict[str, Any], changes: dict[str, str], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        plan_run(RunOptions(**options, text_column="title", **changes))


def test_a_scorer_that_reads_in_its_own_way_fails_the_shard_with_the_reason(
    options: dict[str, Any], ledger: Ledger, tmp_path: Path
) -> None:
    class Own:
        info = ScorerInfo()

        def encode(self, texts: pa.Array, place: object) -> int:
            return len(texts)

        def score_encoded(self, encoded: int, go_on: object, earlier: object) -> Scores:
            return Scores(values=np.zeros((encoded, 1), np.float32))

    with pytest.raises(
        ShardError, match="reads texts in its own way. Leave out --labels, --max-tokens, --passages and --text-pair"
    ):
        publish(
            ledger, Own(), RunOptions(**options, text_column="selftext", max_tokens=8), scratch=tmp_path / "scratch"
        )
