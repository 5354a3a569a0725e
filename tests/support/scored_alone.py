"""Score a shard with the real reader, filter, writer and folder output, without a ledger and with a scorer of the test's own."""

from pathlib import Path
from typing import Any

from shardsift.fleet.inputs.identity import identity_now
from shardsift.fleet.inputs.open_input import open_input
from shardsift.fleet.ledger import Claim
from shardsift.fleet.run.output_columns import describe_columns
from shardsift.fleet.run.receipt import Receipt
from shardsift.fleet.run.spec import Shard
from shardsift.fleet.storage.open_output import open_output
from shardsift.worker.scoring import Scorer
from shardsift.worker.shard.checkpoint import Checkpoint
from shardsift.worker.shard.score_shard import score_shard
from shardsift.worker.shard.vitals import Progress
from support.records import a_spec


def score_alone(source: Path, output: Path, scorer: Scorer[Any], **changes: Any) -> Receipt:
    """`changes` are fields of the spec."""
    with open_input(str(source)) as file:
        spec = a_spec(columns=describe_columns(file.schema), output_uri=str(output), **changes)
    shard = Shard(name="s", uri=str(source), identity=identity_now(str(source))[0])
    claim = Claim(run_id=spec.run_id, shard=shard, spec=spec, token="1-a", attempt=1)
    checkpoint, opened = Checkpoint({}, lambda _row, _scores: None), open_output(spec.output_uri, spec.run_id)
    return score_shard(claim, [scorer], Progress(), checkpoint, opened, worker="w", scratch_dir=None)
