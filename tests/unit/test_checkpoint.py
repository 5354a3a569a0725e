"""The scores of a window are packed into bytes and from_bytes again."""

import numpy as np
import pytest

from shardsift.worker.scoring import Scores
from shardsift.worker.shard.checkpoint import Checkpoint, from_bytes, to_bytes

ROWS = 20
DIGEST = "d1"


def some_scores(*, missing: list[int], outputs: int = 1) -> Scores:
    values = np.random.default_rng(1).normal(size=(ROWS, outputs)).astype(np.float32)
    values[[3, *missing]] = np.nan
    return Scores(values=values, errors={3: "null text"}, missing=np.array(missing, dtype=np.int64), in_float32=2)


@pytest.mark.parametrize("outputs", [1, 3])
@pytest.mark.parametrize("missing", [[], [0], [5, 6, 19], list(range(4, ROWS))])
def test_scores_come_back_bit_by_bit_with_errors_and_what_is_missing(missing: list[int], outputs: int) -> None:
    scores = some_scores(missing=missing, outputs=outputs)

    (back,) = from_bytes(to_bytes([scores], [DIGEST]), ROWS, [DIGEST])

    assert back.values.tobytes() == scores.values.tobytes()
    assert back.errors == scores.errors
    assert back.missing.tolist() == missing
    assert back.in_float32 == 2


STORED = to_bytes([some_scores(missing=[])], [DIGEST])


@pytest.mark.parametrize(
    ("content", "rows"),
    [
        *((content, ROWS) for content in (b"", b"{}", b"\xff\n", b"[]\n1234", STORED[:-3])),
        pytest.param(STORED, ROWS + 1, id="of a window of another size"),
        pytest.param(STORED.replace(b'"texts": "d1", ', b""), ROWS, id="of an earlier release, without a digest"),
    ],
)
def test_what_is_no_checkpoint_of_the_window_is_scored_again(content: bytes, rows: int) -> None:
    assert from_bytes(content, rows, [DIGEST]) == [None]


def test_a_window_finds_its_own_scores_and_no_others() -> None:
    stored: dict[int, bytes] = {}
    Checkpoint({}, stored.__setitem__).store(8192, [some_scores(missing=[])], [DIGEST])

    resumed = Checkpoint(stored, stored.__setitem__)

    assert resumed.scores_of(0, ROWS, [DIGEST]) == [None]
    (found,) = resumed.scores_of(8192, ROWS, [DIGEST])
    assert found.has_all_rows


def test_a_scoring_whose_texts_changed_is_scored_again_and_the_other_is_not() -> None:
    both = [some_scores(missing=[]), some_scores(missing=[5, 6], outputs=3)]

    first, second = from_bytes(to_bytes(both, ["d1", "d2"]), ROWS, ["other", "d2"])

    assert first is None
    assert second.values.tobytes() == both[1].values.tobytes()
    assert second.missing.tolist() == [5, 6]
