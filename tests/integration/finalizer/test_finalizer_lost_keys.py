"""Keys of a run vanish, as in a full Redis that deletes some. No part is published, and the same command repairs the run."""

from pathlib import Path

import pytest
from celery import Celery

from shardsift.fleet.errors import LeaseLost, UsageError
from shardsift.fleet.ledger import Claim, Ledger, Publication
from shardsift.fleet.ledger.base import RUNS, Keys
from shardsift.fleet.process.settings import Settings
from shardsift.fleet.run.spec import RunSpec
from shardsift.producer.planning.enqueue import enqueue
from shardsift.producer.planning.plan import Plan
from shardsift.producer.publishing.publish import NotReady, finalize_run, inspect_and_repair, with_findings
from shardsift.producer.status import ExitCode, run_status
from shardsift.producer.status.advice import level, verdict
from support.finalizer_runs import A, B, C, FinalizerRun, finish
from support.ledger_states import claimed
from support.outputs import manifest_lines
from support.records import a_spec

SHARDS = (A, B, C)
PLACES = ("shards", "waiting", "sent", "running", "failed", "receipts")
SINGLE = ("shards", "running", "receipts", "run", "index", "attempts")
GROUPS = [*((name,) for name in SINGLE), ("sent", "waiting", "running"), ("run", *PLACES)]
MOMENTS = ["before", "during", "done", "published"]


def reached(ledger: Ledger, spec: RunSpec, app: Celery, moment: str) -> Claim | None:
    """The run at some moment. In the middle of it A is done, B is held by the worker of this claim, and C was sent."""
    run = FinalizerRun(ledger=ledger, spec=spec)
    same_command(ledger, spec, app)
    if moment == "before":
        return None
    run.do(A)
    if moment == "during":
        return claimed(ledger, spec.run_id, B)
    run.do(B, C)
    if moment == "published":
        assert isinstance(run.finalize(), Publication)
    return None


def same_command(ledger: Ledger, spec: RunSpec, app: Celery) -> None:
    enqueue(Plan(spec=spec, shards=SHARDS), ledger, app, Settings())


def is_hurt(ledger: Ledger, run_id: str) -> bool:
    """Whether the finalizers do not know of the run, or a shard is unknown or in no place."""
    keys, client = Keys(run_id), ledger.redis
    timed = [client.zcard(key) for key in (keys.waiting, keys.sent, keys.running)]
    in_place = sum(timed) + client.scard(keys.failed) + client.hlen(keys.receipts)
    return client.zscore(RUNS, run_id) is None or {in_place, client.hlen(keys.shards)} != {len(SHARDS)}


def work(ledger: Ledger, spec: RunSpec, held: Claim | None) -> list[str]:
    """The worker that holds a shard goes on, then all that can be claimed is done. Returns what was claimed."""
    if held:
        try:
            ledger.renew(held, rows=1)
            finish(ledger, held)
        except LeaseLost:
            pass
    for name in ledger.redis.zrange(Keys(spec.run_id).running, 0, -1):
        ledger.redis.zadd(Keys(spec.run_id).running, {name: 1})  # its lease ends
    ledger.take_due(spec.run_id, room=3)
    claims = [ledger.claim(spec.run_id, shard.name, "w2") for shard in SHARDS]
    claimed_now = [claim for claim in claims if isinstance(claim, Claim)]
    for claim in claimed_now:
        finish(ledger, claim)
    return [claim.shard.name for claim in claimed_now]


def shards_listed(out: Path) -> int:
    return len(manifest_lines(out)) if (out / "manifest.parquet").exists() else 0


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("lost", GROUPS, ids="+".join)
def test_a_run_that_lost_keys_is_not_published_in_part_and_the_same_command_repairs_it(
    ledger: Ledger, app: Celery, tmp_path: Path, lost: tuple[str, ...], moment: str
) -> None:
    out = tmp_path / "out"
    spec = a_spec(output_uri=str(out))
    run = spec.run_id
    held = reached(ledger, spec, app, moment)
    receipts = 0 if moment == "before" else 1 if moment == "during" else 3

    others = {"index": RUNS, "attempts": Keys(run).attempts(B.name)}
    ledger.redis.delete(*(others.get(name) or getattr(Keys(run), name) for name in lost))

    all_listed = 3 if moment == "published" else 0
    if "run" in lost:
        with pytest.raises(UsageError, match="has no run"):
            finalize_run(ledger, run, without_failed=True)
    else:
        status = with_findings(ledger, run_status(ledger, run), hashes=True)
        if status.word != "published":
            for without_failed in (False, True):
                outcome = finalize_run(ledger, run, without_failed=without_failed)
                all_listed = 3 if isinstance(outcome, Publication) else all_listed
        if is_hurt(ledger, run) and not status.is_published:
            assert (status.exit_code, status.is_over, level(status)) == (ExitCode.FAILED, True, "bad")
            assert "Run the same command again" in verdict(status)
        assert status.word != "published" or (status.counts.done, status.counts.shards) == (3, 3)
    assert shards_listed(out) == all_listed

    same_command(ledger, spec, app)

    assert not is_hurt(ledger, run)
    assert len(work(ledger, spec, held)) <= 3 - receipts, "a shard with a receipt was scored again"
    if ledger.state(run).publication is None:
        assert isinstance(finalize_run(ledger, run, without_failed=False), Publication)
    status = with_findings(ledger, run_status(ledger, run), hashes=True)
    assert (status.word, status.exit_code, status.findings) == ("published", ExitCode.DONE, ())
    assert (status.counts.done, status.counts.shards, status.counts.rows_in) == (3, 3, 30)
    assert shards_listed(out) == 3


def test_receipts_that_vanish_while_a_finalizer_publishes_publish_nothing(run: FinalizerRun) -> None:
    class Losing(Ledger):
        def begin_publishing(self, run_id: str) -> int | None:
            version = super().begin_publishing(run_id)
            self.redis.hdel(Keys(run_id).receipts, A.name, B.name)
            return version

    run.do(A, B, C)

    assert isinstance(finalize_run(Losing(run.ledger.redis, Settings()), run.run_id, without_failed=True), NotReady)
    assert not (run.out / "manifest.parquet").exists()


def test_a_published_run_is_looked_at_only_while_the_ledger_has_all_of_it(run: FinalizerRun) -> None:
    run.do(A, B, C)
    run.finalize()
    before = (run.out / "manifest.parquet").read_bytes()
    run.ledger.redis.hdel(Keys(run.run_id).receipts, A.name)

    inspect_and_repair(run.ledger, run.run_id, hashes=True)

    assert (run.out / "manifest.parquet").read_bytes() == before
