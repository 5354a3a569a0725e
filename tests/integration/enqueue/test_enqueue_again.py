"""The same command again continues its run, after input files changed and after Redis lost all data."""

from dataclasses import replace
from typing import Any

import pytest
from celery import Celery

from shardsift.fleet.errors import ShardError, UsageError
from shardsift.fleet.ledger import Ledger
from shardsift.fleet.process.settings import Settings
from shardsift.producer.planning.enqueue import enqueue
from shardsift.producer.planning.options import RunOptions
from shardsift.producer.planning.plan import plan_run
from shardsift.producer.planning.retry import retry_run
from shardsift.producer.planning.steering import steered
from shardsift.producer.publishing.publish import NotReady, finalize_run
from support.enqueued_runs import Command, write
from support.ledger_states import B, claimed


class TestChangedInput:
    """The same command, after input files have changed."""

    def test_a_changed_file_makes_another_run_and_the_refusal_names_the_retry(self, command: Command) -> None:
        first = command.do()
        command.ledger.renew(claimed(command.ledger, first.run_id), rows=5)
        write(command.source / "a.parquet", id=["other"] * 10)

        with pytest.raises(UsageError, match="holds the data of another run.*the files of the input") as refusal:
            command.do()

        assert str(refusal.value).endswith(f"producer retry {first.run_id}")
        assert command.ledger.run_ids() == [first.run_id]

    def test_a_file_that_changed_again_or_came_back_is_taken_for_what_it_is(self, command: Command) -> None:
        first = command.do()
        command.ledger.renew(claimed(command.ledger, first.run_id), rows=5)
        original = (command.source / "b.parquet").read_bytes()
        for content in ("mended", "mended again"):
            write(command.source / "b.parquet", id=[content] * 10)
            command.ledger.fail(claimed(command.ledger, first.run_id, B), "the input changed", "")
            retry_run(command.ledger, first.run_id)
        again = command.do()
        assert (again.run_id, again.added, again.counts.shards) == (first.run_id, 0, 3)
        assert [shard.changed for shard in command.ledger.shards(first.run_id, ["a", "b"])] == [False, True]

        write(command.source / "b.parquet", id=["mended"] * 10)
        with pytest.raises(UsageError, match="the files of the input"):
            command.do()
        (command.source / "b.parquet").write_bytes(original)
        command.ledger.redis.flushall()
        without_redis = command.do()
        assert (without_redis.run_id, without_redis.added) == (first.run_id, 3)

    @pytest.mark.parametrize("rows", [3, 20])
    def test_longer_or_shorter_files_change_no_other_shard_of_a_limited_run(self, command: Command, rows: int) -> None:
        command = replace(command, options=replace(command.options, limit_rows=15))
        first = command.do()
        write(command.source / "a.parquet", text=["mended"] * rows, id=["mended"] * rows, length=[0] * rows)
        command.ledger.fail(claimed(command.ledger, first.run_id), "the input changed", "")
        retry_run(command.ledger, first.run_id)

        again = command.do()
        kept = list(command.ledger.shards(first.run_id))
        command.ledger.redis.flushall()
        without_redis = command.do()

        assert (again.run_id, again.added, again.counts.is_whole) == (first.run_id, 0, True)
        assert (without_redis.run_id, without_redis.added) == (first.run_id, 2)
        assert [(shard.name, shard.row_limit, shard.changed) for shard in kept] == [("a", None, True), ("b", 5, False)]
        assert list(command.ledger.shards(first.run_id)) == kept

    def test_a_file_of_a_shard_that_is_done_is_not_taken_as_it_is_now(self, command: Command) -> None:
        plan = command.plan()
        command.do()
        command.ledger.restore(plan.spec.run_id, [command.stage(plan.spec.run_id, plan.shards[0])])
        write(command.source / "a.parquet", id=["other"] * 10)
        retry_run(command.ledger, plan.spec.run_id)

        with pytest.raises(UsageError, match="the files of the input"):
            command.do()


class TestSteering:
    """How fast a run is scored is no part of what is scored."""

    def test_limits_of_workers_and_cost_make_no_new_run(self, options: RunOptions, ledger: Ledger, app: Celery) -> None:
        plan = plan_run(options)
        workers = [{"max_workers": 2}, {}, {"max_workers": 0}]
        costs: list[dict[str, Any]] = [{"price_per_gpu_hour": 1.2}, {"max_cost": 50}, {"max_cost": 0}]

        done, limits = [], []
        for given in [*workers, *costs]:
            ledger.steer(plan.spec.run_id, steered(ledger, plan.spec.run_id, **given))
            done.append(enqueue(plan, ledger, app, Settings()))
            limits.append(ledger.state(plan.spec.run_id).steering)

        assert {one.run_id for one in done} == {plan.spec.run_id}
        assert [one.sent for one in done] == [2, 0, 1, 0, 0, 0]
        assert [one.max_cost for one in limits[3:]] == [None, 50, None]
        assert {one.price_per_gpu_hour for one in limits[3:]} == {1.2}

    def test_a_limit_of_cost_without_a_price_is_refused(self, ledger: Ledger) -> None:
        with pytest.raises(UsageError, match="set SHARDSIFT_PRICE_PER_GPU_HOUR, such as 1.20"):
            steered(ledger, "a-run", max_cost=50)


class TestTakingOver:
    """After a loss of Redis, finished shards are found by the receipts that are stored with the output."""

    def test_shards_whose_output_is_there_are_not_scored_again(self, command: Command) -> None:
        plan = command.plan()
        command.do()
        receipts = [command.stage(plan.spec.run_id, shard) for shard in plan.shards[:2]]
        command.ledger.redis.flushall()

        again = command.do()

        assert (again.added, again.restored, again.sent) == (3, 2, 1)
        assert (again.counts.done, again.counts.queued, again.counts.rows_in) == (2, 1, 20)
        assert list(command.ledger.receipts(again.run_id)) == receipts
        assert command.ledger.state(again.run_id).number_format == receipts[0].scorings[0].dtype
        assert finalize_run(command.ledger, again.run_id, without_failed=False) == NotReady(
            reason="1 shard not done yet"
        )

    def test_shards_that_the_user_wants_scored_again_are_not_taken_over(self, command: Command) -> None:
        plan = command.plan()
        command.do()
        command.ledger.restore(plan.spec.run_id, [command.stage(plan.spec.run_id, plan.shards[0])])
        command.ledger.retry(plan.spec.run_id, changed=[plan.shards[0].name])

        again = command.do()

        assert (again.restored, again.counts.done) == (0, 0)

    def test_receipts_that_cannot_be_read_leave_no_run_behind(self, command: Command) -> None:
        command.do()
        command.ledger.redis.flushall()
        (command.out / "file").write_text("not a folder")
        (command.out / "manifest.parquet").symlink_to(command.out / "file/manifest.parquet")

        with pytest.raises(ShardError, match=r"manifest.parquet|receipts"):
            command.do()

        assert command.ledger.redis.keys() == []
