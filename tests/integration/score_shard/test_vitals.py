"""An attempt knows where its time went."""

import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from fleet.inputs.opening import open_input
from fleet.ledger import Claim
from fleet.run.output_columns import describe_columns
from fleet.run.receipt import Phase, Receipt
from fleet.run.spec import Shard
from fleet.storage.identity import identity_now
from fleet.storage.opening import open_output
from support.claimed_shards import one_shard
from support.records import a_spec
from worker.scoring import ScorerInfo, Scores
from worker.shard.checkpoint import Checkpoint
from worker.shard.score_shard import score_shard
from worker.shard.vitals import Progress

WINDOWS = 8


class SlowScorer:
    """Takes its time for each window, in each of its two steps."""

    info = ScorerInfo()

    def __init__(self, *, encode_seconds: float, score_seconds: float) -> None:
        self.encode_seconds, self.score_seconds = encode_seconds, score_seconds

    def encode(self, texts: pa.LargeStringArray, place: Any) -> pa.LargeStringArray:
        time.sleep(self.encode_seconds)
        return texts

    def score_encoded(self, texts: pa.LargeStringArray, go_on: Any, earlier: Scores | None) -> Scores:
        time.sleep(self.score_seconds)
        go_on(len(texts))
        return Scores(values=np.ones((len(texts), 1), dtype=np.float32))


def scored(scorer: SlowScorer, folder: Path) -> Receipt:
    shards = one_shard(folder / "in", pa.table({"text": ["a text"] * 40 * WINDOWS}))
    source = str(shards / "000_00000.parquet")
    with open_input(source) as file:
        spec = a_spec(columns=describe_columns(file.schema), output_uri=str(folder / "out"), window_rows=40)
    shard = Shard(name="s", uri=source, identity=identity_now(source)[0])
    claim = Claim(run_id=spec.run_id, shard=shard, spec=spec, token="1-a", attempt=1)
    checkpoint, output = Checkpoint({}, lambda _row, _scores: None), open_output(spec.output_uri, spec.run_id)
    return score_shard(claim, [scorer], Progress(), checkpoint, output, worker="w", scratch_dir=None)


@pytest.mark.parametrize(
    ("encode_seconds", "score_seconds", "mostly"), [(0.02, 0.15, Phase.DEVICE), (0.15, 0.02, Phase.TOKENIZE)]
)
def test_the_phases_add_up_to_the_time_and_name_what_takes_it(
    encode_seconds: float, score_seconds: float, mostly: Phase, tmp_path: Path
) -> None:
    made = scored(SlowScorer(encode_seconds=encode_seconds, score_seconds=score_seconds), tmp_path).provenance

    spent = made.seconds
    assert sum(spent.values()) == pytest.approx(made.finished_at - made.started_at, rel=0.03)
    assert spent[Phase.DEVICE] >= WINDOWS * score_seconds
    assert max(spent, key=lambda phase: spent[phase]) == mostly
