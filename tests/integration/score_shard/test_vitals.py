"""An attempt knows where its time went."""

import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from shardsift.fleet.run.receipt import Phase
from shardsift.worker.scoring import ScorerInfo, Scores
from support.claimed_shards import one_shard
from support.scored_alone import score_alone

WINDOWS = 8


class SlowScorer:
    """Takes its time for each window, in each of its two steps."""

    info = ScorerInfo()

    def __init__(self, encode_seconds: float, score_seconds: float) -> None:
        self.encode_seconds, self.score_seconds = encode_seconds, score_seconds

    def encode(self, texts: pa.LargeStringArray) -> pa.LargeStringArray:
        time.sleep(self.encode_seconds)
        return texts

    def score_encoded(self, texts: pa.LargeStringArray, go_on: Any, earlier: Scores | None) -> Scores:
        time.sleep(self.score_seconds)
        go_on(len(texts))
        return Scores(values=np.ones((len(texts), 1), dtype=np.float32))


@pytest.mark.parametrize(
    ("encode_seconds", "score_seconds", "mostly"), [(0.02, 0.15, Phase.DEVICE), (0.15, 0.02, Phase.TOKENIZE)]
)
def test_the_phases_add_up_to_the_time_and_name_what_takes_it(
    encode_seconds: float, score_seconds: float, mostly: Phase, tmp_path: Path
) -> None:
    shards = one_shard(tmp_path / "in", pa.table({"text": ["a text"] * 40 * WINDOWS}))
    scorer = SlowScorer(encode_seconds=encode_seconds, score_seconds=score_seconds)

    made = score_alone(shards / "000_00000.parquet", tmp_path / "out", scorer, window_rows=40).provenance

    spent = made.seconds
    assert sum(spent.values()) == pytest.approx(made.finished_at - made.started_at, rel=0.03)
    assert [round(time, 3) for time in (made.started_at, made.finished_at)] == [made.started_at, made.finished_at]
    assert spent[Phase.DEVICE] >= WINDOWS * score_seconds
    assert max(spent, key=lambda phase: spent[phase]) == mostly
