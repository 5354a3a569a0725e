"""A fleet without processes: a command, a worker with the stand-in scorer and a finalizer, one after another in this process."""

from dataclasses import dataclass
from pathlib import Path

from stand_in import StandInScorer

from shardsift.fleet.ledger import Claim, Ledger, Publication
from shardsift.fleet.process.broker import make_app
from shardsift.fleet.process.settings import Settings
from shardsift.producer.planning.enqueue import enqueue
from shardsift.producer.planning.plan import Plan
from shardsift.producer.publishing.publish import finalize_run, with_findings
from shardsift.producer.status import run_status
from shardsift.producer.status.advice import what_next
from support.small_run import do

_ROUNDS = 4  # of scoring and publishing, after which a run must be published


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The messages, state and exit code that a user of `producer enqueue` sees, and the cost of the run."""

    said: list[str]  # about the output, before anything was repaired
    then: list[str]  # below the table, at the end
    shards: list[str]  # that were scored
    rows_scored: int
    state: str
    exit_code: int


def enqueue_and_wait(redis_url: str, plan: Plan, folder: Path, verify: bool = False) -> Outcome:
    """Run the enqueue command, then a worker and a finalizer until the run is published."""
    settings = Settings(redis_url=redis_url)
    ledger = Ledger.connect(settings)
    with make_app("test", settings) as app:
        done = enqueue(plan, ledger, app, settings, verify=verify, score_again=True)
    log = folder / "work.log"
    log.unlink(missing_ok=True)
    scorer, shards, run_id = StandInScorer("cpu", log, rows_a_batch=4, seconds_a_batch=0), [], plan.spec.run_id
    for _ in range(_ROUNDS):
        shards += work(ledger, plan, scorer, folder)
        if ledger.state(run_id).publication or isinstance(
            finalize_run(ledger, run_id, without_failed=False), Publication
        ):
            break
    status = with_findings(ledger, run_status(ledger, run_id), hashes=verify)
    return Outcome(
        said=[str(finding) for finding in done.findings],
        then=what_next(status),
        shards=shards,
        rows_scored=sum(int(line.split()[2]) for line in log.read_text().splitlines()),
        state=status.word,
        exit_code=status.exit_code,
    )


def work(ledger: Ledger, plan: Plan, scorer: StandInScorer, folder: Path) -> list[str]:
    """Score every shard that can be claimed. Returns their names."""
    done = []
    for shard in plan.shards:
        claim = ledger.claim(plan.spec.run_id, shard.name, "w1@test/1")
        if isinstance(claim, Claim):
            do(ledger, claim, scorer, folder)
            done.append(shard.name)
    return done
