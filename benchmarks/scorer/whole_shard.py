"""Our scorer as a worker runs it, from a Parquet file to kept rows and all scores, but without Redis."""

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, cast

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.scorer.case import UnavailableError, Values
from benchmarks.scorer.ours import encoded_windows, tokens_sent
from shardsift.worker.scoring.sequence_classifier import SequenceClassifier

if TYPE_CHECKING:
    from shardsift.fleet.ledger import Claim
    from shardsift.fleet.run.choices import Dtype

_MIN_SCORE = 3.0
_ROW_GROUP_ROWS = 1_000  # as in FineWeb's files


class OursShard:
    """Read, tokenise, score, filter, write, hash and stage a shard. The steps overlap as in a worker."""

    def __init__(self, scorer: SequenceClassifier) -> None:
        try:
            import shardsift.worker.shard.score_shard  # noqa: F401
        except ImportError as error:
            raise UnavailableError(f"A whole shard needs all that a worker needs: {error}.") from error
        self.dtype = scorer.dtype
        self._scorer = scorer
        self._tokens_sent = 0

    def prepare(self, texts: list[str]) -> Callable[[], Values]:
        self._tokens_sent = tokens_sent(self._scorer, encoded_windows(self._scorer, pa.array(texts)))
        folder = Path(tempfile.mkdtemp(prefix="shardsift-bench-"))
        source = folder / "000_00000.parquet"
        columns = {"text": texts, "id": [f"<urn:uuid:{row}>" for row in range(len(texts))]}
        pq.write_table(pa.table(columns), source, row_group_size=_ROW_GROUP_ROWS)
        return lambda: _scores(self._scorer, source, folder / "output")

    def tokens_sent(self) -> int:
        return self._tokens_sent


def _scores(scorer: SequenceClassifier, source: Path, output: Path) -> Values:
    from shardsift.fleet.storage.open_output import open_output
    from shardsift.worker.shard.checkpoint import Checkpoint
    from shardsift.worker.shard.score_shard import score_shard
    from shardsift.worker.shard.vitals import Progress

    claim = claim_of(source, output, scorer.dtype)
    checkpoint = Checkpoint({}, lambda first_row, scores: None)
    place = open_output(claim.spec.output_uri, claim.run_id)
    receipt = score_shard(claim, [scorer], Progress(), checkpoint, place, worker="benchmark", scratch_dir=None)
    return np.asarray(pq.read_table(output / receipt.scores.staged_path)["score"], dtype=np.float32)


def claim_of(source: Path, output: Path, dtype: str) -> "Claim":
    from shardsift.fleet.inputs.identity import identity_now
    from shardsift.fleet.ledger import Claim
    from shardsift.fleet.run.model import Model
    from shardsift.fleet.run.output_columns import describe_columns
    from shardsift.fleet.run.scoring import Scoring
    from shardsift.fleet.run.spec import RunSpec, Shard

    spec = RunSpec(
        input_uris=(str(source.parent),),
        input_revision="",
        crawl=None,
        columns=describe_columns(pq.read_schema(source)),
        scorings=(
            Scoring(
                model=Model(name="benchmark", revision="", labels=("score",)),
                dtype=cast("Dtype", dtype),
                text_columns=("text",),
                score_column="score",
            ),
        ),
        where=f"score >= {_MIN_SCORE}",
        output_uri=str(output),
    )
    identity, _ = identity_now(str(source))
    shard = Shard(name=source.stem, uri=str(source), identity=identity)
    return Claim(run_id=spec.run_id, shard=shard, spec=spec, token="1-a", attempt=1)
