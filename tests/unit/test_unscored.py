"""A row without a score has a reason and is never kept, whatever a scorer returns."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from shardsift.fleet.errors import ShardError
from shardsift.fleet.run.model import Model
from shardsift.worker.scoring import Scores
from shardsift.worker.shard.window_scoring import unscorable_rows, with_reasons, without_rows
from support.records import a_spec

TEXTS = pa.array(["a", None, " \u2003\n", "", "\u00a0\u3000\u2028", "\u200b"], pa.large_string())
SCORING = replace(a_spec().scorings[0], model=Model(name="m", revision="1", labels=("x", "y"), scorer="own"))


def test_rows_without_a_text_reach_no_scorer() -> None:
    unscorable = unscorable_rows(TEXTS)

    assert unscorable == {1: "null text", 2: "blank text", 3: "blank text", 4: "blank text"}
    assert without_rows(TEXTS, unscorable).to_pylist() == ["a", None, None, None, None, "\u200b"]


def test_a_scorer_cannot_score_a_row_without_a_text() -> None:
    scores = with_reasons(Scores(values=np.zeros((2, 2), np.float32)), {1: "null text"}, SCORING, rows=2)

    assert scores.errors == {1: "null text"}
    assert np.isnan(scores.values[1]).all()


def test_a_score_that_is_not_finite_is_an_errored_row_but_what_was_not_reached_is_missing() -> None:
    values = np.array([[1, 2], [np.nan, 1], [np.inf, 0], [np.nan, np.nan], [np.nan, np.nan]], np.float32)
    returned = Scores(values=values, errors={3: "too long"}, missing=np.array([4]))

    scores = with_reasons(returned, {}, SCORING, rows=5)

    assert scores.errors == {1: "score is not finite", 2: "score is not finite", 3: "too long"}
    assert np.isnan(scores.values[1:]).all()
    assert scores.missing.tolist() == [4]


@pytest.mark.parametrize(
    ("values", "says"),
    [
        (np.zeros(3, np.float32), r"shape \(3,\) and type float32 for 3 rows"),
        (np.array([["a", "b"]] * 3), "type <U1"),
    ],
)
def test_other_shapes_fail_the_shard_with_what_is_expected(values: object, says: str) -> None:
    with pytest.raises(ShardError, match=says):
        with_reasons(Scores(values=values), {}, SCORING, rows=3)  # type: ignore[arg-type]
