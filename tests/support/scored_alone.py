"""Score a shard with the real reader, filter, writer and folder output, without a ledger and with a scorer of the test's own."""

from pathlib import Path
from typing import Any

from fleet.inputs.opening import open_input
from fleet.ledger import Claim
from fleet.run.output_columns import describe_columns
from fleet.run.receipt import Receipt
from fleet.run.spec import Shard
from fleet.storage.identity import identity_now
from fleet.storage.opening import open_output
from support.records import a_spec
from worker.scoring import Scorer
from worker.shard.checkpoint import Checkpoint
from worker.shard.score_shard import score_shard
from worker.shard.vitals import Progress


def score_alone(
    source: Path, output: Path, scorer: Scorer[Any], *, progress: Progress | None = None, **changes: Any
) -> Receipt:
    """`changes` are fields of the spec."""
    with open_input(str(source)) as file:
        spec = a_spec(columns=describe_columns(file.schema), output_uri=str(output), **changes)
    shard = Shard(name="s", uri=str(source), identity=identity_now(str(source))[0])
    claim = Claim(run_id=spec.run_id, shard=shard, spec=spec, token="1-a", attempt=1)
    checkpoint, opened = Checkpoint({}, lambda _row, _scores: None), open_output(spec.output_uri, spec.run_id)
    return score_shard(claim, [scorer], progress or Progress(), checkpoint, opened, worker="w", scratch_dir=None)
