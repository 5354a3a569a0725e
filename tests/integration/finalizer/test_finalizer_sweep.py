"""The sweep sends lost messages again, and requests waves and the publication once."""

import json
import logging
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
import redis
from celery import Celery

from fleet.broker import make_app
from fleet.errors import UsageError
from fleet.ledger import Claim, Ledger
from fleet.ledger.keys import Keys
from fleet.ledger.records import Steering
from fleet.message import FINALIZE_QUEUE, FINALIZE_RUN
from fleet.processes import Child, running
from fleet.queues import queue_length, queue_lists
from fleet.settings import Settings
from fleet.spec import RunSpec
from producer.finalizer.publish import finalize_run
from producer.finalizer.sweep import Sweeper
from producer.local.redis_server import find_redis_server
from producer.status import run_status
from producer.status.advice import what_next
from producer.steering import AS_IT_WAS, SteeringOptions, resume_run
from support.finalizer_runs import A, B, C, do, fail
from support.ledger_states import claimed
from support.records import a_receipt, a_shard, a_spec
from support.waiting import wait_until


class TestSweeping:
    @pytest.fixture
    def sweeper(self, app: Celery, ledger: Ledger, settings: Settings) -> Sweeper:
        return Sweeper(app, ledger, settings)

    def test_waiting_shards_are_sent_once(self, ledger: Ledger, spec: RunSpec, sweeper: Sweeper) -> None:
        sweeper.sweep()
        sweeper.sweep()

        assert queue_length(ledger.redis, spec.queue) == 3

    def test_a_lease_that_ran_out_is_sent_again(
        self, ledger: Ledger, settings: Settings, spec: RunSpec, sweeper: Sweeper
    ) -> None:
        sweeper.sweep()
        ledger.redis.delete(*queue_lists(spec.queue))
        dead = Ledger.connect(settings.model_copy(update={"lease_seconds": 0.001}))
        assert isinstance(dead.claim(spec.run_id, A.name, "dead"), Claim)

        def sent_again() -> bool:
            sweeper.sweep()
            return queue_length(ledger.redis, spec.queue) == 1

        wait_until(sent_again, description="the lease runs out", seconds=5)
        assert ledger.counts(spec.run_id).running == 0
        assert claimed(ledger, spec.run_id, A).attempt == 2

    def test_publishing_is_asked_for_once(self, ledger: Ledger, spec: RunSpec, sweeper: Sweeper) -> None:
        do(ledger, spec, A, B, C)

        sweeper.sweep()
        sweeper.sweep()

        (message,) = ledger.redis.lrange(FINALIZE_QUEUE, 0, -1)
        assert json.loads(message)["headers"]["task"] == FINALIZE_RUN

    def test_it_is_not_asked_for_again_while_the_asked_finalizer_is_at_work(
        self, ledger: Ledger, spec: RunSpec, sweeper: Sweeper
    ) -> None:
        do(ledger, spec, A, B, C)
        sweeper.sweep()
        ledger.redis.delete(FINALIZE_QUEUE)

        sweeper.sweep()

        assert ledger.redis.llen(FINALIZE_QUEUE) == 0

    @pytest.mark.parametrize("state", ["open", "failed", "published", "cancelled"])
    def test_it_is_not_asked_for_without_need(
        self, ledger: Ledger, spec: RunSpec, sweeper: Sweeper, state: str
    ) -> None:
        do(ledger, spec, A, B)
        match state:
            case "failed":
                fail(ledger, spec, C)
            case "published":
                do(ledger, spec, C)
                finalize_run(ledger, spec.run_id, without_failed=False)
            case "cancelled":
                do(ledger, spec, C)
                ledger.cancel(spec.run_id)

        sweeper.sweep()

        assert ledger.redis.llen(FINALIZE_QUEUE) == 0

    def test_it_is_asked_for_when_a_retried_shard_came_after_the_publication(
        self, ledger: Ledger, spec: RunSpec, sweeper: Sweeper
    ) -> None:
        do(ledger, spec, A, B)
        fail(ledger, spec, C)
        finalize_run(ledger, spec.run_id, without_failed=True)
        ledger.retry(spec.run_id)
        do(ledger, spec, C)

        sweeper.sweep()

        assert ledger.redis.llen(FINALIZE_QUEUE) == 1

    def test_a_look_for_waves_is_asked_for_as_shards_are_done(
        self, app: Celery, ledger: Ledger, settings: Settings
    ) -> None:
        sweeper = Sweeper(app, ledger, settings.model_copy(update={"wave_shards": 2}))
        hub_run = on_the_hub(ledger, shards=6)
        sweeper.sweep()
        asked = [ledger.redis.llen(FINALIZE_QUEUE)]

        for number in range(5):
            done_on_the_hub(ledger, hub_run, number)
            sweeper.sweep()
            sweeper.sweep()
            asked.append(ledger.redis.llen(FINALIZE_QUEUE))

        assert asked == [
            0,
            1,
            1,
            2,
            2,
            3,
        ]  # the first check, because earlier ones may be forgotten; then every second

    @pytest.mark.parametrize("state", ["open", "failed", "cancelled"])
    def test_a_look_for_waves_is_asked_for_as_time_passes(
        self, app: Celery, ledger: Ledger, settings: Settings, state: str
    ) -> None:
        sweeper = Sweeper(app, ledger, settings.model_copy(update={"wave_seconds": 0.2}))
        hub_run = on_the_hub(ledger, shards=2)
        done_on_the_hub(ledger, hub_run, 0)
        if state == "failed":
            fail(ledger, hub_run, a_shard("hub/1"))
        elif state == "cancelled":
            ledger.cancel(hub_run.run_id)

        def asked_twice() -> bool:
            sweeper.sweep()
            return ledger.redis.llen(FINALIZE_QUEUE) == 2

        wait_until(asked_twice, description="a second look is asked for", seconds=5)

    def test_a_run_on_the_hub_that_is_done_is_published_without_a_wave(self, ledger: Ledger, sweeper: Sweeper) -> None:
        hub_run = on_the_hub(ledger, shards=1)
        done_on_the_hub(ledger, hub_run, 0)

        sweeper.sweep()
        sweeper.sweep()

        assert ledger.redis.llen(FINALIZE_QUEUE) == 1

    def test_a_cancelled_run_is_left_alone(self, ledger: Ledger, spec: RunSpec, sweeper: Sweeper) -> None:
        ledger.cancel(spec.run_id)

        sweeper.sweep()

        assert queue_length(ledger.redis, spec.queue) == 0

    def test_a_paused_run_is_sent_when_it_is_resumed(self, ledger: Ledger, spec: RunSpec, sweeper: Sweeper) -> None:
        ledger.pause(spec.run_id)
        sweeper.sweep()
        sent_while_paused = queue_length(ledger.redis, spec.queue)
        ledger.resume(spec.run_id)

        sweeper.sweep()

        assert (sent_while_paused, queue_length(ledger.redis, spec.queue)) == (0, 3)

    def test_a_run_whose_last_shards_were_done_while_it_was_paused_is_published(
        self, ledger: Ledger, spec: RunSpec, sweeper: Sweeper
    ) -> None:
        claims = [claimed(ledger, spec.run_id, shard) for shard in (A, B, C)]
        ledger.pause(spec.run_id)
        for claim in claims:
            ledger.complete(claim, a_receipt(spec.run_id, claim.shard))

        sweeper.sweep()

        assert ledger.redis.llen(FINALIZE_QUEUE) == 1

    def test_a_run_that_has_cost_what_it_may_is_paused_with_the_reason_until_it_may_cost_more(
        self, ledger: Ledger, spec: RunSpec, sweeper: Sweeper
    ) -> None:
        ledger.steer(spec.run_id, Steering(max_cost=50, price_per_gpu_hour=2))
        ledger.redis.hset(Keys(spec.run_id).run, "worker_ms", 24 * 3_600_000)
        sweeper.sweep()
        cheap = ledger.pause_reason(spec.run_id)
        ledger.redis.hset(Keys(spec.run_id).run, "worker_ms", 25 * 3_600_000 + 36_000)

        sweeper.sweep()

        status = run_status(ledger, spec.run_id)
        assert (cheap, status.word, status.cost and status.cost.so_far) == (None, "paused", 50.02)
        assert what_next(status)[0] == (
            "It is paused: it has cost 50.02, and --max-cost is 50. Resume it: "
            f"producer resume {spec.run_id} --max-cost 100"
        )
        with pytest.raises(UsageError, match="stays paused: it has cost 50.02, and --max-cost is 50"):
            resume_run(ledger, spec.run_id, AS_IT_WAS)
        assert resume_run(ledger, spec.run_id, SteeringOptions(max_cost=100))
        sweeper.sweep()
        assert ledger.pause_reason(spec.run_id) is None

    def test_a_sweeper_of_one_run_leaves_others_alone(
        self, app: Celery, ledger: Ledger, settings: Settings, spec: RunSpec
    ) -> None:
        other = a_spec(output_uri="memory://other", dtype="float16")
        ledger.create_run(other, [A], now=2.0)

        Sweeper(app, ledger, settings, only_run=other.run_id).sweep()

        assert (queue_length(ledger.redis, spec.queue), queue_length(ledger.redis, other.queue)) == (0, 1)

    def test_a_run_that_cannot_be_read_stops_no_other(
        self, ledger: Ledger, spec: RunSpec, sweeper: Sweeper, caplog: pytest.LogCaptureFixture
    ) -> None:
        newer = a_spec(output_uri="memory://newer")
        ledger.create_run(newer, [A], now=2.0)
        ledger.redis.hset(f"shardsift:run:{newer.run_id}", "spec", '{"of": "another release"}')

        sweeper.sweep()

        assert queue_length(ledger.redis, spec.queue) == 3
        assert f"Left to other finalizers: Run {newer.run_id} was enqueued by another version" in caplog.text

    def test_two_sweepers_send_each_shard_once(
        self, app: Celery, ledger: Ledger, settings: Settings, spec: RunSpec
    ) -> None:
        sweepers = [Sweeper(app, ledger, settings) for _ in range(2)]
        for sweeper in sweepers:
            sweeper.start()

        wait_until(lambda: queue_length(ledger.redis, spec.queue) >= 3, description="all shards are sent", seconds=10)
        for sweeper in sweepers:
            sweeper.stop()

        assert queue_length(ledger.redis, spec.queue) == 3

    def test_a_sweeper_survives_a_restart_of_redis(
        self, tmp_path_factory: pytest.TempPathFactory, caplog: pytest.LogCaptureFixture
    ) -> None:
        folder = tmp_path_factory.mktemp("r")
        settings = Settings(redis_url=f"unix://{folder}/s", sweep_seconds=0.05)
        spec = a_spec()
        with redis_at(folder):
            wait_until(lambda: answers(folder), description="Redis answers", seconds=10)
            ledger = Ledger.connect(settings)
            sweeper = Sweeper(make_app("test", settings), ledger, settings)
            sweeper.start()
        with caplog.at_level(logging.WARNING):
            wait_until(lambda: "Redis does not answer" in caplog.text, description="a sweep fails", seconds=10)

        with redis_at(folder):
            wait_until(lambda: answers(folder), description="Redis answers again", seconds=10)
            ledger.create_run(spec, [A, B], now=1.0)
            wait_until(lambda: queue_length(ledger.redis, spec.queue) == 2, description="the sweep goes on", seconds=10)
            sweeper.stop()


def on_the_hub(ledger: Ledger, *, shards: int) -> RunSpec:
    """A run of `shards` shards that would be published to the Hub."""
    spec = a_spec(output_uri="hf://datasets/org/out")
    ledger.create_run(spec, [a_shard(f"hub/{number}") for number in range(shards)], now=1.0)
    return spec


def done_on_the_hub(ledger: Ledger, spec: RunSpec, number: int) -> None:
    shard = a_shard(f"hub/{number}")
    ledger.complete(claimed(ledger, spec.run_id, shard), a_receipt(spec.run_id, shard))


def answers(folder: Path) -> bool:
    with redis.Redis(unix_socket_path=f"{folder}/s") as client:
        try:
            return bool(client.ping())
        except redis.RedisError:
            return False


def redis_at(folder: Path) -> AbstractContextManager[Child]:
    """A Redis on a socket that stays the same."""
    command = [find_redis_server(), "--port", "0", "--unixsocket", f"{folder}/s", "--dir", str(folder), "--save", ""]
    return running(command, log=folder / "log", stop_seconds=10)
