"""An attempt knows where its time went, and when the next shard may begin."""

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from shardsift.fleet.run.receipt import Phase
from shardsift.worker.scoring import ScorerInfo, Scores
from shardsift.worker.scoring.sequence_classifier import SequenceClassifier
from shardsift.worker.shard.vitals import Progress, WindowPace
from support.backends import Preceded
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


class Noted(Progress):
    """Notes when the next shard may begin, and how many windows had been given to the scorer then."""

    def __init__(self, pace: WindowPace) -> None:
        super().__init__(pace)
        self.launches = 0
        self.noted: list[tuple[str, int]] = []

    def on_launch(self) -> None:
        self.launches += 1

    def on_read(self) -> None:
        self.noted.append(("read", self.launches))

    def on_launched(self) -> None:
        self.noted.append(("launched", self.launches))


@pytest.mark.parametrize("windows", [1, 2, WINDOWS])
def test_the_next_shard_begins_before_the_device_has_all_windows_but_not_beside_a_scorer_that_does_not_expect_it(
    windows: int, scorer: SequenceClassifier, tmp_path: Path
) -> None:
    pace = WindowPace()
    shards = one_shard(tmp_path / "in", pa.table({"text": ["a text"] * 40 * windows}))
    first, second, own = Noted(pace), Noted(pace), Noted(pace)
    slow = replace(scorer, backend=Preceded(scorer.backend, lambda _: time.sleep(0.02)))  # so that the reader is ahead

    for number, (one, progress) in enumerate([(slow, first), (slow, second), (SlowScorer(0, 0.01), own)]):
        score_alone(shards / "000_00000.parquet", tmp_path / str(number), one, progress=progress, window_rows=40)

    (read, launches), last = second.noted
    assert read == "read"
    if windows == WINDOWS:  # of few windows, the reader may see the end only when the device has all
        assert launches < windows
    assert last == ("launched", windows)
    assert own.noted == [("launched", windows)]
    if windows == 1:  # nothing is known of the pace yet
        assert first.noted == [("launched", 1)]
