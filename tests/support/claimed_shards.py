"""Shards that are enqueued and claimed as by the product, to be scored without Celery."""

import threading
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from shardsift.fleet.ledger import Claim, Ledger
from shardsift.fleet.run.receipt import Receipt
from shardsift.producer.planning.plan import plan_run
from shardsift.worker.scoring.sequence_classifier import SequenceClassifier
from shardsift.worker.service.lease import Lease
from support.ledger_states import claimed
from support.small_run import WORKER, Runs, enqueue_plan, leased, score_leased

_outputs = count()


@dataclass
class Desk:
    """A worker's state: a claimed shard, its lease, a scorer, and a scratch folder."""

    claim: Claim
    lease: Lease
    scorer: Any
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
        scorers = [self.scorer] * len(self.claim.spec.scorings)
        return score_leased(self.ledger, self.claim, scorers, self.lease, self.stopping, self.scratch)

    def produced(self) -> list[str]:
        """List the names of the files in the output and the scratch folder, except the spec that `enqueue` wrote."""
        files = [path for folder in (self.output, self.scratch) for path in folder.rglob("*") if path.is_file()]
        return sorted(path.name for path in files if path.name != "spec.json")


class Office:
    """Enqueues and claims the shards of folders as the product does, and makes a Desk for each."""

    def __init__(self, ledger: Ledger, scorer: SequenceClassifier, model: Path, folder: Path) -> None:
        self.scorer = scorer
        self._ledger, self._model, self._folder = ledger, model, folder

    def claim(self, shards: Path, *, shard: int = 0, scratch: Path | None = None, **options: object) -> Desk:
        runs = Runs(ledger=self._ledger, scorer=self.scorer, models=(str(self._model),), folder=self._folder)
        plan = plan_run(runs.options(shards, f"output-{next(_outputs)}", **options))
        enqueue_plan(self._ledger, plan)
        claim = claimed(self._ledger, plan.spec.run_id, plan.shards[shard], owner=WORKER)
        return self.desk(claim, scratch=scratch)

    def desk(self, claim: Claim, *, scratch: Path | None = None) -> Desk:
        scratch = scratch or self._folder / "scratch"
        scratch.mkdir(exist_ok=True)
        lease, stopping = leased(self._ledger, claim)
        return Desk(
            claim=claim, lease=lease, scorer=self.scorer, scratch=scratch, stopping=stopping, ledger=self._ledger
        )

    def taken_over(self, claim: Claim) -> Claim:
        """Claim the shard again as the worker's next child does. This ends the old claim."""
        return claimed(self._ledger, claim.run_id, claim.shard, owner=WORKER)


@dataclass
class StopsAfter:
    """A backend that counts its batches, and tells the worker to stop during batch number `batches`."""

    backend: Any
    stopping: threading.Event
    batches: int
    done: int = 0
    name: str = "stand-in"

    def logits(self, batch: Any) -> Any:
        self.done += 1
        if self.done == self.batches:
            self.stopping.set()
        return self.backend.logits(batch)


def one_shard(folder: Path, rows: pa.Table) -> Path:
    folder.mkdir()
    pq.write_table(rows, folder / "000_00000.parquet")
    return folder
