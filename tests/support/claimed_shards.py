"""Shards that are enqueued and claimed as by the product, to be scored without Celery."""

import threading
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from shardsift.fleet.ledger import Claim, Ledger
from shardsift.fleet.run.receipt import Receipt
from shardsift.fleet.storage.opening import open_output
from shardsift.producer.planning.options import RunOptions
from shardsift.producer.planning.plan import plan_run
from shardsift.worker.scoring.sequence_classifier import SequenceClassifier
from shardsift.worker.service.lease import Lease
from support.ledger_states import claimed
from support.small_run import WORKER, leased, score_leased

_outputs = count()


@dataclass
class Desk:
    """What a worker has: a claimed shard, its lease, a scorer, and a scratch folder."""

    claim: Claim
    lease: Lease
    scorer: SequenceClassifier
    scratch: Path
    stopping: threading.Event
    ledger: Ledger

    @property
    def output(self) -> Path:
        return Path(self.claim.spec.output_uri)

    def work(self) -> Receipt:
        with self.lease:
            return self.work_under_the_lease()

    def work_under_the_lease(self) -> Receipt:
        return score_leased(self.ledger, self.claim, [self.scorer], self.lease, self.stopping, self.scratch)

    def produced(self) -> list[str]:
        """The files of the output without the spec that `enqueue` wrote, and the rest of the scratch folder."""
        files = [path for folder in (self.output, self.scratch) for path in folder.rglob("*") if path.is_file()]
        return sorted(path.name for path in files if path.name != "spec.json")


class Office:
    """Runs over folders of shards, enqueued and claimed as by the product."""

    def __init__(self, ledger: Ledger, scorer: SequenceClassifier, model: Path, folder: Path) -> None:
        self._ledger, self._scorer, self._model, self._folder = ledger, scorer, model, folder

    def claim(self, shards: Path, *, shard: int = 0, scratch: Path | None = None, **options: object) -> Desk:
        output = self._folder / f"output-{next(_outputs)}"
        plan = plan_run(
            RunOptions(
                **{
                    "input_uris": (str(shards),),
                    "models": (str(self._model),),
                    "dtype": "float32",
                    "output_uri": str(output),
                    "keep_all": "where" not in options,
                    **options,
                }
            )
        )
        open_output(plan.spec.output_uri, plan.spec.run_id).reserve(plan.spec)
        self._ledger.create_run(plan.spec, plan.shards, now=0)
        claim = claimed(self._ledger, plan.spec.run_id, plan.shards[shard], owner=WORKER)
        return self.desk(claim, scratch=scratch)

    def desk(self, claim: Claim, *, scratch: Path | None = None) -> Desk:
        scratch = scratch or self._folder / "scratch"
        scratch.mkdir(exist_ok=True)
        lease, stopping = leased(self._ledger, claim)
        return Desk(
            claim=claim, lease=lease, scorer=self._scorer, scratch=scratch, stopping=stopping, ledger=self._ledger
        )

    def taken_over(self, claim: Claim) -> Claim:
        """The claim of this worker's next child, which ends the old claim."""
        return claimed(self._ledger, claim.run_id, claim.shard, owner=WORKER)


def one_shard(folder: Path, rows: pa.Table) -> Path:
    folder.mkdir()
    pq.write_table(rows, folder / "000_00000.parquet")
    return folder
