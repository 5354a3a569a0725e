"""Write a plan to the ledger as a run, and send its first messages."""

import time
from contextlib import suppress
from dataclasses import dataclass

from celery import Celery

from shardsift.fleet.dispatch import queue_lost_shards, send_due_shards
from shardsift.fleet.errors import OutputTaken, ScoredBefore, UsageError
from shardsift.fleet.ledger import Counts, Ledger
from shardsift.fleet.process.settings import Settings
from shardsift.fleet.process.wording import counted
from shardsift.fleet.run.model import joint_format
from shardsift.fleet.run.receipt import Receipt
from shardsift.fleet.run.spec import RunSpec
from shardsift.fleet.scorers.stored_scores import published_run
from shardsift.fleet.storage.inspection import Finding
from shardsift.fleet.storage.open_output import open_output
from shardsift.fleet.storage.output import Output, Recovered, refilter_command
from shardsift.producer.planning.plan import Plan
from shardsift.producer.planning.steering import steered
from shardsift.producer.publishing.publish import inspect_and_repair, publish_evidence
from shardsift.producer.status import run_status
from shardsift.producer.transient_errors import with_retries


@dataclass(frozen=True, kw_only=True, repr=False)
class Enqueued:
    """The result of enqueueing a run. `counts` is the state of the run now.

    `added` counts the shards that are new to the ledger. `restored` counts the shards that were recorded as done because
    their output was found after the ledger was lost. `sent` counts messages. `findings` lists the faults of a published
    output, repaired or not; shards that must be scored again are queued.
    """

    run_id: str
    output_uri: str
    queue: str
    added: int
    restored: int
    sent: int
    counts: Counts
    findings: tuple[Finding, ...] = ()
    instead_of: str | None = None  # an earlier run of this output, cancelled because it had scored nothing
    paused: bool = False  # the run waits for `producer resume`: enqueueing a run again does not end its pause

    def as_json(self) -> dict[str, object]:
        return {
            "run_id": self.run_id,
            "queue": self.queue,
            "shards": self.counts.shards,
            "added": self.added,
            "paused": self.paused,
        }

    def __repr__(self) -> str:
        shards = counted(self.counts.shards, "shard")
        paused = ", paused" if self.paused else ""
        return f"<Enqueued {self.run_id}: {shards}, {self.added:,} new, {self.counts.done:,} done{paused}; {self.output_uri}>"


def enqueue(
    plan: Plan,
    ledger: Ledger,
    app: Celery,
    settings: Settings,
    *,
    verify: bool = False,
    score_again: bool = False,
) -> Enqueued:
    """Reserve the output, write the run and send its messages. May run twice: the second time adds nothing.

    If the ledger was lost, shards whose output exists are recorded as done. If the run is published, its output is checked
    and repaired; `verify` also checks the content. Raises ScoredBefore if another run has scored the rows, unless
    `score_again`. Raises OutputTaken if another run has the output, and UsageError if the output cannot be used.
    """
    spec = plan.spec
    if not score_again and (told := scored_before(plan, ledger, settings)):
        check_output(plan, ledger)
        raise ScoredBefore(told)
    output = open_output(spec.output_uri, spec.run_id, state_uri=settings.state_uri)
    instead_of = _reserved(output, spec, ledger, public=plan.public)
    # Read and record receipts before the run is marked as enqueued: if the producer dies here, or cannot read them, no
    # worker scores finished shards, and the next call reads the receipts.
    recovered, taken = Recovered(), list[Receipt]()
    if not (ledger.state(spec.run_id).complete and ledger.counts(spec.run_id).is_whole):
        recovered, taken = with_retries(output.recovered)(), ledger.take_receipts(spec.run_id)
    added = ledger.add_shards(spec, plan.shards, now=time.time())
    ledger.steer(spec.run_id, steered(ledger, spec.run_id, price_per_gpu_hour=settings.price_per_gpu_hour))
    ledger.set_command(spec.run_id, plan.command)
    if plan.evidence:
        ledger.set_evidence(spec.run_id, plan.evidence.to_json())
    here = {shard.name: shard.identity for shard in plan.shards}
    receipts = [one for one in (*taken, *recovered.whole) if here.get(one.shard) == one.source_identity]
    restored = ledger.restore(spec.run_id, receipts)
    for receipt in [*receipts, *(plan.extended.receipts[:1] if plan.extended else ())][:1]:
        made_in = zip(spec.scorings, receipt.scorings, strict=True)
        ledger.settle_format(spec.run_id, joint_format({scoring.queue: one.dtype for scoring, one in made_in}))
    ledger.mark_enqueued(spec.run_id)
    ledger.clear_publish_error(spec.run_id)
    findings = with_retries(inspect_and_repair)(ledger, spec.run_id, hashes=verify)
    findings = findings or with_retries(_losses)(output, recovered, spec, hashes=verify)
    if plan.evidence and ledger.state(spec.run_id).publication:
        publish_evidence(spec.output_uri, spec.run_id, plan.evidence)
    queue_lost_shards(ledger, spec.run_id, resend_seconds=settings.resend_seconds)
    sent = send_due_shards(app, ledger, spec.run_id)
    return Enqueued(
        run_id=spec.run_id,
        output_uri=spec.output_uri,
        queue=spec.queue,
        added=added,
        restored=restored,
        sent=sent,
        counts=ledger.counts(spec.run_id),
        findings=findings,
        instead_of=instead_of,
        paused=ledger.state(spec.run_id).paused is not None,
    )


@with_retries
def scored_before(plan: Plan, ledger: Ledger, settings: Settings) -> str:
    """Return a message that names an earlier run with the scores of this plan, and the command that reuses them.

    Empty if there is no such run, or if the plan's own run has begun. Changes nothing.
    """
    spec, run_ids = plan.spec, ledger.run_ids()
    if spec.run_id in run_ids or spec.scorings[0].scores_from:
        return ""
    run_id = next((run_id for run_id in run_ids if _has_scores(run_id, spec, ledger)), None)
    if run_id is None:
        return ""
    if open_output(spec.output_uri, spec.run_id, state_uri=settings.state_uri).recovered() != Recovered():
        return ""
    return (
        f"These rows were scored by run {run_id}. To score them again, add --score-again. Without a model: "
        f"{refilter_command(run_id, ledger.spec(run_id), spec)}"
    )


def _has_scores(run_id: str, spec: RunSpec, ledger: Ledger) -> bool:
    """Return whether a run has all scores that `spec` needs, and is published or being published.

    Returns False if its output is gone.
    """
    with suppress(UsageError):  # Redis has lost the run, or nothing is published at its output
        if ledger.spec(run_id).has_scores_of(spec):
            status = run_status(ledger, run_id, most_failures=1)
            if not status.is_published:
                return status.word == "publishing"
            published = published_run(status.output_uri)
            return published.run_id == run_id or published.spec.is_in_place
    return False


def check_output(plan: Plan, ledger: Ledger | None) -> None:
    """Raise UsageError if `enqueue` would find that the output cannot be used. Changes nothing."""
    try:
        with_retries(open_output(plan.spec.output_uri, plan.spec.run_id).check_free)(plan.spec)
    except OutputTaken as taken:
        if not (ledger and _has_scored_nothing(plan.spec.output_uri, taken.run_id, ledger)):
            raise


def _reserved(output: Output, spec: RunSpec, ledger: Ledger, *, public: bool) -> str | None:
    """Reserve the output. Returns the id of an earlier run that was cancelled to free it, otherwise None.

    Cancels only a run that has scored nothing, such as one that was started with a wrong --dtype. Raises OutputTaken for
    other runs. Cancels before reserving, so that the earlier run's workers store nothing and no finalizer publishes it.
    """
    try:
        with_retries(output.reserve)(spec, public=public)
    except OutputTaken as taken:
        if not _has_scored_nothing(spec.output_uri, taken.run_id, ledger):
            raise
        ledger.cancel(taken.run_id, replaced_by=spec.run_id)
        with_retries(open_output(spec.output_uri, taken.run_id).withdraw)()
        with_retries(output.reserve)(spec, public=public)
        return taken.run_id
    return None


@with_retries
def _has_scored_nothing(output_uri: str, run_id: str, ledger: Ledger) -> bool:
    """Return whether a run has no scores in the ledger or in the output. False if the ledger does not have the run."""
    _, counts, pace = ledger.progress(run_id)
    if run_id not in ledger.run_ids() or counts.done or pace.rows:
        return False
    output = open_output(output_uri, run_id)
    return not output.is_published() and output.recovered() == Recovered()


def _losses(output: Output, recovered: Recovered, spec: RunSpec, *, hashes: bool) -> tuple[Finding, ...]:
    """Return the faults of a published output, if its ledger was lost. `recovered` has the receipts found with the output.

    Empty if all files are whole. The shards with faults are scored again.
    """
    if not recovered.partial or not output.is_published():
        return ()
    return tuple(output.inspect([*recovered.whole, *recovered.partial], hashes=hashes))
