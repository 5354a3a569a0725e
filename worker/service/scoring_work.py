"""The work of an attempt at a shard: score it, store what is kept with the output, and record the receipt."""

from dataclasses import dataclass

from celery import Task

from fleet.counted import counted
from fleet.errors import LeaseLost, RunUnknown
from fleet.ledger import Claim
from fleet.receipt import Receipt
from fleet.storage.opening import open_output
from worker.service.attempt import Done, progress_of
from worker.service.checkpoint_store import open_checkpoint
from worker.service.child import Child
from worker.service.device_meter import DeviceMeter
from worker.service.lease import Lease
from worker.service.steps import Steps
from worker.service.waiting import wait_for_redis
from worker.shard.score_shard import score_shard


@dataclass(frozen=True, kw_only=True)
class ScoringWork:
    """`worker` is the owner of the claim."""

    claim: Claim
    child: Child
    task: Task
    worker: str
    steps: Steps

    def do(self) -> Done:
        receipt = self._score_and_record()
        rows_in = counted(receipt.rows_in, "row")
        seconds = receipt.provenance.finished_at - receipt.provenance.started_at
        line = f"{rows_in} in, {receipt.rows_kept:,} kept, {receipt.rows_errored:,} errored"
        return Done(
            line=line,
            logged=f"{rows_in} in, {receipt.rows_kept} kept, {receipt.rows_errored} errored",
            fields={"rows": receipt.rows_in, "seconds": round(seconds, 1)},
        )

    def on_unrecorded(self, unknown: RunUnknown) -> str:
        return f"{self.claim.what} is scored, and its receipt is stored with the output."

    def end(self, outcome: str, error: Exception | None = None) -> None:
        self.steps.end(outcome, error)

    def close(self) -> None:
        self.child.traces.send(self.claim, self.steps, worker=self.worker)

    def _score_and_record(self) -> Receipt:
        child, claim = self.child, self.claim
        output = open_output(claim.spec.output_uri, claim.run_id)
        scorers = child.scorers_of(claim.spec)
        lease = Lease(
            child.ledger,
            claim,
            device=DeviceMeter(scorers[0].info.device, scorers),
            stopping=child.stopping,
            report=progress_of(self.task),
            report_seconds=child.settings.progress_seconds,
            watchdog=child.watchdog,
        )
        with lease:
            with (
                self.steps.of_work(lease.vitals),
                open_checkpoint(claim, child.ledger, output, child.stopping) as checkpoint,
            ):
                scratch_dir = child.settings.scratch_dir
                receipt = score_shard(
                    claim,
                    scorers,
                    lease,
                    checkpoint,
                    output,
                    worker=self.worker,
                    scratch_dir=scratch_dir,
                )
            try:
                wait_for_redis(lambda: child.ledger.complete(claim, receipt), child.stopping)
            except LeaseLost:
                if child.ledger.is_done(claim):  # if it is not, this receipt may be the only one: `enqueue` may use it
                    output.discard(receipt)
                raise
        if claim.spilled:
            output.drop_checkpoints(claim.shard.name)
        return receipt
