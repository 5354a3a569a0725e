"""The sweep sends lost messages again."""

from collections.abc import Callable
from functools import partial

import pytest
from celery import Celery

from shardsift.fleet.errors import UsageError
from shardsift.fleet.ledger import Ledger
from shardsift.fleet.ledger.base import Keys
from shardsift.fleet.ledger.records import Steering
from shardsift.fleet.process.broker import queue_length
from shardsift.fleet.process.settings import Settings
from shardsift.producer.finalizer import sweep
from shardsift.producer.planning.steering import resume_run
from shardsift.producer.status import run_status
from shardsift.producer.status.advice import what_next
from support.finalizer_runs import A, FinalizerRun
from support.records import a_spec

Sweep = Callable[[], None]


class TestSweeping:
    @pytest.fixture
    def sweep_all(self, app: Celery, ledger: Ledger, settings: Settings) -> Sweep:
        return partial(sweep, app, ledger, settings)

    def test_a_run_is_paused_when_it_has_cost_what_it_may(self, run: FinalizerRun, sweep_all: Sweep) -> None:
        run.ledger.steer(run.run_id, Steering(max_cost=50, price_per_gpu_hour=2))
        run.ledger.redis.hset(Keys(run.run_id).run, "worker_ms", 24 * 3_600_000)
        sweep_all()
        cheap = run.ledger.state(run.run_id).paused
        run.ledger.redis.hset(Keys(run.run_id).run, "worker_ms", 25 * 3_600_000 + 36_000)

        sweep_all()

        status = run_status(run.ledger, run.run_id)
        assert (cheap, status.word, status.cost and status.cost.so_far) == (None, "paused", 50.02)
        assert what_next(status)[0] == (
            "It is paused: it has cost 50.02, and --max-cost is 50. Raise its limit: "
            f"producer set {run.run_id} --max-cost 101. Resume it: producer resume {run.run_id}"
        )
        with pytest.raises(UsageError, match="stays paused: it has cost 50.02, and --max-cost is 50"):
            resume_run(run.ledger, run.run_id)
        assert resume_run(run.ledger, run.run_id, max_cost=101)
        sweep_all()
        assert run.ledger.state(run.run_id).paused is None

    def test_a_sweep_of_one_run_leaves_others_alone(self, app: Celery, run: FinalizerRun, settings: Settings) -> None:
        other = a_spec(output_uri="memory://other", dtype="float16")
        run.ledger.create_run(other, [A], now=2.0)

        sweep(app, run.ledger, settings.model_copy(update={"only_run": other.run_id}))

        assert (queue_length(run.ledger.redis, run.spec.queue), queue_length(run.ledger.redis, other.queue)) == (0, 1)

    def test_a_run_that_cannot_be_read_or_sent_stops_no_other(
        self, run: FinalizerRun, sweep_all: Sweep, caplog: pytest.LogCaptureFixture
    ) -> None:
        other, newer = a_spec(output_uri="memory://other", dtype="float16"), a_spec(output_uri="memory://newer")
        for spec in (other, newer):
            run.ledger.create_run(spec, [A], now=-1.0)
        run.ledger.redis.set(other.queue, "x")
        run.ledger.redis.hset(f"shardsift:run:{newer.run_id}", "spec", '{"of": "another release"}')

        sweep_all()

        assert queue_length(run.ledger.redis, run.spec.queue) == 3
        assert f"Run {other.run_id}: Redis refuses this (WRONGTYPE" in caplog.text
        assert f"Run {newer.run_id} was enqueued by another version" in caplog.text
