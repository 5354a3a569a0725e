"""What the finalizer publishes without being asked, and when it looks whether to save shards on the Hub."""

import pytest

from fleet.ledger import Ledger
from fleet.ledger.base import FINISHED
from fleet.process.settings import Settings
from fleet.run.spec import RunSpec
from producer.finalizer import Finalizer, Publisher
from producer.publishing.waves import WaveWatch
from producer.status import run_status
from support.finalizer_runs import A, B, C, do, fail, finish
from support.ledger_states import claimed
from support.waiting import wait_until


@pytest.mark.parametrize("state", ["open", "failed", "cancelled"])
def test_other_runs_are_not(ledger: Ledger, spec: RunSpec, publisher: Publisher, state: str) -> None:
    do(ledger, spec, A, B)
    if state == "failed":
        fail(ledger, spec, C)
    elif state == "cancelled":
        do(ledger, spec, C)
        ledger.cancel(spec.run_id)

    publisher.publish_ready()

    assert ledger.publication(spec.run_id) is None
    assert ledger.publish_error(spec.run_id) is None


def test_a_run_whose_last_shards_were_done_while_it_was_paused_is_published(
    ledger: Ledger, spec: RunSpec, publisher: Publisher
) -> None:
    do(ledger, spec, A, B)
    claim = claimed(ledger, spec.run_id, C)
    ledger.pause(spec.run_id)
    finish(ledger, claim)
    word = run_status(ledger, spec.run_id).word

    publisher.publish_ready()

    assert word == "publishing"
    assert ledger.publication(spec.run_id).shards == 3


def test_another_thing_at_the_key_of_the_wake_fails_no_shard_and_is_removed(ledger: Ledger, spec: RunSpec) -> None:
    ledger.redis.set(FINISHED, "x")

    do(ledger, spec, A, B, C)

    assert ledger.wait_for_finished_run(0.01)
    assert not ledger.redis.exists(FINISHED)


def test_a_finalizer_begins_at_once_when_the_last_shard_is_done_and_survives_what_others_write_to_its_list(
    ledger: Ledger, settings: Settings, spec: RunSpec
) -> None:
    finalizer = Finalizer(ledger, settings.model_copy(update={"sweep_seconds": 3600}))
    finalizer.start()
    do(ledger, spec, A, B)
    ledger.redis.lpush(FINISHED, "garbage", "5", "")
    wait_until(lambda: not ledger.redis.exists(FINISHED), description="it is woken")

    do(ledger, spec, C)

    wait_until(lambda: ledger.publication(spec.run_id), description="the run is published", seconds=5)
    finalizer.stop()


def test_a_look_for_waves_is_due_as_shards_are_done_and_as_time_passes() -> None:
    watch = WaveWatch(Settings(wave_shards=2, wave_seconds=100))

    looks = [watch.wants_look("run", done=done, now=0) for done in (1, 1, 2, 3, 4, 5)]

    assert looks == [True, False, False, True, False, True]  # the first, because earlier ones may be forgotten
    assert [watch.wants_look("run", done=5, now=now) for now in (24, 25, 26)] == [False, True, False]
