"""A whole run within this process: real ledger, real classifier, real files, without Celery and worker processes."""

import sys
import threading
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from shardsift.fleet.ledger import Claim, Ledger
from shardsift.fleet.process.settings import Settings
from shardsift.fleet.run.receipt import Receipt
from shardsift.fleet.run.spec import RunSpec, Shard
from shardsift.fleet.storage.open_output import open_output
from shardsift.producer.planning.options import RefilterOptions, RunOptions
from shardsift.producer.planning.plan import Plan, plan_run
from shardsift.producer.planning.refilter import plan_refilter
from shardsift.producer.publishing.publish import finalize_run
from shardsift.worker.scoring import Scorer
from shardsift.worker.service.checkpoint_store import open_checkpoint
from shardsift.worker.service.device_meter import DeviceMeter
from shardsift.worker.service.lease import Lease
from shardsift.worker.service.watchdog import Watchdog
from shardsift.worker.shard.score_shard import score_shard
from shardsift.worker.shard.stored_scores import load_stored_scores
from support.ledger_states import claimed
from support.models import plain_scorer

WORKER = "w1@test/1"
_CHOICES = {"min_score", "where", "keep_all"}  # of rows
Scorers = Scorer[Any] | list[Scorer[Any]]  # one for each scoring of the run, or one for all


@dataclass(frozen=True, kw_only=True)
class Runs:
    """Whole runs of the same models. Each has its own output below `folder`, and can be refiltered."""

    ledger: Ledger
    scorer: Scorers
    models: tuple[str, ...]
    folder: Path
    specs: dict[Path, RunSpec] = field(default_factory=dict)  # by output

    def by(self, *models: Path, **named: Path) -> "Runs":
        """Return runs of other models: a single one, or several with names."""
        scorers: Scorers = [loaded(model) for model in (*models, *named.values())]
        names = (*map(str, models), *(f"{name}={model}" for name, model in named.items()))
        return replace(self, scorer=scorers, models=names)

    def options(self, source: Path, output: str = "out", **options: Any) -> RunOptions:
        """Make options of a run. It keeps all rows, unless `options` choose rows."""
        keeps = {} if _CHOICES & options.keys() else {"keep_all": True}
        run = {"input_uris": (str(source),), "models": self.models, "dtype": "float32"}
        return RunOptions(**{**run, "output_uri": str(self.folder / output), **keeps, **options})

    def publish(self, source: Path, output: str = "out", *, failing: Collection[str] = (), **options: Any) -> Path:
        return self.publish_plan(plan_run(self.options(source, output, **options)), failing=failing)

    def refilter(
        self, earlier: Path | str, output: str = "again", *, failing: Collection[str] = (), **options: Any
    ) -> Path:
        """Publish a run over the scores of an earlier run. Returns its output."""
        plan = self.refilter_plan(earlier, output, **options)
        stored = load_stored_scores(plan.spec.served_by[0], None)
        return replace(self, scorer=stored).publish_plan(plan, failing=failing)

    def refilter_plan(self, earlier: Path | str, output: str = "again", **options: Any) -> Plan:
        place = {} if options.get("replaces") else {"output_uri": str(self.folder / output)}
        chosen = RefilterOptions(**place, **options)
        known = self.specs.get(earlier)
        return plan_refilter(str(earlier), chosen, input_uris=known.input_uris if known else ())

    def publish_plan(self, plan: Plan, *, failing: Collection[str] = ()) -> Path:
        publish_plan(self.ledger, self.scorer, plan, scratch=self.folder / "scratch", failing=failing)
        output = Path(plan.spec.output_uri)
        self.specs[output] = plan.spec
        return output


def shared_runs(redis_url: str, model: Path, folder: Path) -> Runs:
    """Make runs for a fixture that outlives a test."""
    ledger = Ledger.connect(Settings(redis_url=redis_url))
    return Runs(ledger=ledger, scorer=loaded(model), models=(str(model),), folder=folder)


def loaded(model: Path) -> Scorer[Any]:
    """The scorer of a model, loaded as by a worker."""
    return plain_scorer(model, threads=1)


def publish_plan(ledger: Ledger, scorer: Scorers, plan: Plan, *, scratch: Path, failing: Collection[str] = ()) -> None:
    """Enqueue, score and publish a run. The shards named in `failing` fail without being scored."""
    spec = plan.spec
    enqueue_plan(ledger, plan)
    ledger.set_command(spec.run_id, plan.command)
    if plan.evidence:
        ledger.set_evidence(spec.run_id, plan.evidence.to_json())
    score(ledger, scorer, spec, [shard for shard in plan.shards if shard.name not in failing], scratch=scratch)
    for shard in plan.shards:
        if shard.name in failing:
            ledger.fail(claimed(ledger, spec.run_id, shard, owner=WORKER), "it is broken", "")
    finalize_run(ledger, spec.run_id, without_failed=True)


def enqueue_plan(ledger: Ledger, plan: Plan) -> None:
    """Reserve the output of a run and write the run."""
    open_output(plan.spec.output_uri, plan.spec.run_id).reserve(plan.spec)
    ledger.create_run(plan.spec, plan.shards, now=1.0)


def score(ledger: Ledger, scorer: Scorers, spec: RunSpec, shards: Iterable[Shard], *, scratch: Path) -> list[Receipt]:
    scratch.mkdir(parents=True, exist_ok=True)
    return [do(ledger, claimed(ledger, spec.run_id, shard, owner=WORKER), scorer, scratch) for shard in shards]


def do(ledger: Ledger, claim: Claim, scorer: Scorers, scratch: Path) -> Receipt:
    """Score and complete a claimed shard."""
    lease, stopping = leased(ledger, claim)
    scorers = scorer if isinstance(scorer, list) else [scorer] * len(claim.spec.scorings)
    with lease:
        receipt = score_leased(ledger, claim, scorers, lease, stopping, scratch)
    ledger.complete(claim, receipt)
    return receipt


def leased(ledger: Ledger, claim: Claim) -> tuple[Lease, threading.Event]:
    """Make a lease for a claim, and the event that stops its worker."""
    stopping, watchdog = threading.Event(), Watchdog(900, sys.__stderr__)
    return Lease(
        ledger,
        claim,
        device=DeviceMeter("cpu", ()),
        stopping=stopping,
        begin_next=lambda: None,
        watchdog=watchdog,
    ), stopping


def score_leased(
    ledger: Ledger, claim: Claim, scorers: list[Scorer[Any]], lease: Lease, stopping: threading.Event, scratch: Path
) -> Receipt:
    output = open_output(claim.spec.output_uri, claim.run_id)
    with open_checkpoint(claim, ledger, output, stopping) as checkpoint:
        return score_shard(claim, scorers, lease, checkpoint, output, worker=WORKER, scratch_dir=scratch)


def rounding(plan: Plan) -> Plan:
    """Add the rounded score to a plan, as a recipe does. Recipes are only for models on the Hub."""
    scorings = tuple(replace(scoring, int_score=True) for scoring in plan.spec.scorings)
    return replace(plan, spec=replace(plan.spec, scorings=scorings))
