"""What the finalizer publishes without being asked, and when it looks whether to save shards on the Hub."""

import pytest

from shardsift.fleet.ledger.base import FINISHED
from shardsift.fleet.process.settings import Settings
from shardsift.producer.finalizer import Finalizer, Publisher
from shardsift.producer.publishing.waves import WaveWatch
from shardsift.producer.status import run_status
from support.finalizer_runs import A, B, C, FinalizerRun, finish
from support.ledger_states import claimed
from support.waiting import wait_until


def test_a_run_whose_last_shards_were_done_while_paused_is_published(run: FinalizerRun, publisher: Publisher) -> None:
    run.do(A, B)
    claim = claimed(run.ledger, run.run_id, C)
    run.ledger.pause(run.run_id)
    finish(run.ledger, claim)
    word = run_status(run.ledger, run.run_id).word

    publisher.publish_ready()

    assert word == "publishing"
    assert run.publication.shards == 3


def test_another_thing_at_the_key_of_the_wake_fails_no_shard_and_is_removed(run: FinalizerRun) -> None:
    run.ledger.redis.set(FINISHED, "x")

    run.do(A, B, C)

    assert run.ledger.wait_for_finished_run(0.01)
    assert not run.ledger.redis.exists(FINISHED)


def test_a_finalizer_begins_with_the_last_shard_and_survives_garbage(run: FinalizerRun, settings: Settings) -> None:
    finalizer = Finalizer(run.ledger, settings.model_copy(update={"sweep_seconds": 3600}))
    finalizer.start()
    run.do(A, B)
    run.ledger.redis.lpush(FINISHED, "garbage", "5", "")
    wait_until(lambda: not run.ledger.redis.exists(FINISHED), description="it is woken")

    run.do(C)

    wait_until(lambda: run.publication, description="the run is published", seconds=5)
    finalizer.stop()


@pytest.mark.parametrize(
    ("looks", "wanted"),
    [
        ([(1, 0)], [True]),  # the first, because earlier ones may be forgotten
        ([(1, 0), (2, 60), (3, 61), (4, 62), (5, 122)], [True, False, True, False, True]),
        ([(1, 0), (99, 59), (99, 60)], [True, False, True]),  # the Hub limits commits
        ([(1, 0), (1, 99), (1, 100), (1, 101)], [True, False, True, False]),
        ([(9_900, 0), (9_990, 60), (10_000, 61)], [True, False, True]),  # each asks about every shard that is done
    ],
)
def test_looks_for_waves_are_due_by_shards_and_by_time(looks: list[tuple[int, float]], wanted: list[bool]) -> None:
    watch = WaveWatch(Settings(wave_shards=2, wave_seconds=400))

    assert [watch.is_check_due("run", done=done, now=now) for done, now in looks] == wanted
