"""Each promise of the ledger, held against a real Redis."""

import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path

import pytest
import redis

from fleet.errors import LeaseLost, UsageError
from fleet.ledger import Claim, Ledger, Publication, Refusal
from fleet.settings import Settings
from fleet.shard import Shard
from fleet.spec import RunSpec
from producer.local.processes import running
from producer.local.redis_server import embedded_redis, find_redis_server
from support.records import a_receipt, a_shard, a_spec
from support.waiting import wait_until

_numbers = count()
A, B, C = a_shard("a"), a_shard("b"), a_shard("c/d")


@pytest.fixture(scope="module")
def redis_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with embedded_redis(tmp_path_factory.mktemp("redis")) as url:
        yield url


@pytest.fixture(scope="module")
def locked_socket(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The socket of a Redis whose password is `correct horse/1@2`."""
    folder = tmp_path_factory.mktemp("r")
    path = folder / "s"
    password = "correct horse/1@2"
    command = [find_redis_server(), "--port", "0", "--unixsocket", str(path), "--requirepass", password]
    with running([*command, "--dir", str(folder), "--save", ""], log=folder / "log", stop_seconds=10):
        wait_until(lambda: listens(path), description="Redis listens", seconds=10)
        yield path


@pytest.fixture
def client(redis_url: str) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(redis_url, decode_responses=True) as client:
        yield client


@pytest.fixture
def ledger(client: redis.Redis) -> Ledger:
    return Ledger(client)


@pytest.fixture
def short(client: redis.Redis) -> Ledger:
    """The same ledger for workers whose leases run out at once."""
    return Ledger(client, lease_seconds=0.001)


@pytest.fixture
def spec() -> RunSpec:
    return a_spec(input_revision=f"revision-{next(_numbers)}")


@pytest.fixture
def run(ledger: Ledger, spec: RunSpec) -> str:
    """A run of three shards."""
    ledger.create_run(spec, [A, B, C], now=time.time())
    return spec.run_id


def listens(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as client:
        return client.connect_ex(str(path)) == 0


def claimed(ledger: Ledger, run_id: str, shard: Shard = A, *, owner: str = "w1") -> Claim:
    claim = ledger.claim(run_id, shard.name, owner)
    assert isinstance(claim, Claim), claim
    return claim


def claimed_when_free(ledger: Ledger, run_id: str, shard: Shard = A, *, owner: str) -> Claim:
    def claim() -> Claim | None:
        found = ledger.claim(run_id, shard.name, owner)
        return found if isinstance(found, Claim) else None

    return wait_until(claim, description=f"the lease of {shard.name} runs out", seconds=5)


def due(ledger: Ledger, run_id: str, *, queue_is_empty: bool = True, resend_seconds: float = 60.0) -> list[str]:
    return ledger.take_due(run_id, queue_is_empty=queue_is_empty, resend_seconds=resend_seconds)


def end_back_off(client: redis.Redis, run_id: str, shard: Shard = A) -> None:
    client.zadd(f"shardsift:run:{run_id}:waiting", {shard.name: 0}, xx=True)


class TestRuns:
    def test_shards_written_twice_are_there_once(self, ledger: Ledger, spec: RunSpec) -> None:
        added = [ledger.create_run(spec, [A, B], now=1.0), ledger.create_run(spec, [A, B, C], now=2.0)]

        assert added == [2, 1]
        assert ledger.counts(spec.run_id).shards == ledger.counts(spec.run_id).queued == 3

    def test_writing_it_again_leaves_states_alone(self, ledger: Ledger, spec: RunSpec, run: str) -> None:
        claim = claimed(ledger, run)
        ledger.complete(claimed(ledger, run, B), a_receipt(run, B))

        ledger.create_run(spec, [A, B, C], now=time.time())

        ledger.renew(claim, rows=1)
        counts = ledger.counts(run)
        assert (counts.queued, counts.running, counts.done) == (1, 1, 1)

    def test_more_shards_than_fit_in_one_call_are_all_written(self, ledger: Ledger, spec: RunSpec) -> None:
        shards = [a_shard(f"{number:05}") for number in range(2_345)]

        assert ledger.create_run(spec, shards, now=1.0) == 2_345
        taken = [due(ledger, spec.run_id) for _ in range(4)]
        assert [len(names) for names in taken] == [1000, 1000, 345, 0]
        assert sorted(name for names in taken for name in names) == [shard.name for shard in shards]

    def test_the_spec_comes_back_as_it_was(self, ledger: Ledger, spec: RunSpec, run: str) -> None:
        assert ledger.spec(run) == spec

    def test_an_unknown_run_is_told_with_those_there_are(self, ledger: Ledger, run: str) -> None:
        with pytest.raises(UsageError, match=f"no run 'nope'.*{run}"):
            ledger.spec("nope")

    def test_runs_are_listed_newest_first(self, ledger: Ledger) -> None:
        old, new = a_spec(input_revision="old"), a_spec(input_revision="new")
        ledger.create_run(new, [A], now=3e9)
        ledger.create_run(old, [A], now=2e9)
        ledger.create_run(old, [A], now=4e9)

        assert ledger.run_ids()[:2] == [new.run_id, old.run_id]

    def test_runs_do_not_see_each_others_shards(self, ledger: Ledger, run: str) -> None:
        other = a_spec(input_revision=f"other of {run}")
        ledger.create_run(other, [A], now=1.0)

        ledger.complete(claimed(ledger, run), a_receipt(run, A))

        assert ledger.counts(other.run_id).done == 0
        assert isinstance(ledger.claim(other.run_id, A.name, "w2"), Claim)


class TestClaims:
    def test_a_claim_has_all_that_a_worker_needs(self, ledger: Ledger, spec: RunSpec, run: str) -> None:
        claim = claimed(ledger, run, C)

        assert (claim.run_id, claim.shard, claim.spec, claim.attempt) == (run, C, spec, 1)

    def test_a_second_worker_is_refused(self, ledger: Ledger, run: str) -> None:
        claimed(ledger, run)

        assert ledger.claim(run, A.name, "w2") is Refusal.RUNNING

    def test_of_many_threads_one_gets_each_shard(self, redis_url: str, spec: RunSpec) -> None:
        shards = [a_shard(f"{number}") for number in range(40)]
        ledger = Ledger.connect(Settings(redis_url=redis_url))
        ledger.create_run(spec, shards, now=1.0)

        def claim_all(owner: str) -> list[Claim]:
            answers = [ledger.claim(spec.run_id, shard.name, owner) for shard in shards]
            return [answer for answer in answers if isinstance(answer, Claim)]

        with ThreadPoolExecutor(8) as threads:
            claims = [claim for claims in threads.map(claim_all, "abcdefgh") for claim in claims]

        assert sorted(claim.shard.name for claim in claims) == sorted(shard.name for shard in shards)
        assert len({claim.token for claim in claims}) == len(shards)

    def test_a_shard_whose_lease_ran_out_is_anybodys(self, ledger: Ledger, short: Ledger, run: str) -> None:
        first = claimed(short, run)

        second = claimed_when_free(ledger, run, owner="w2")

        assert second.attempt == 2
        assert second.token > first.token

    def test_a_renewed_lease_keeps_others_out(self, ledger: Ledger, short: Ledger, run: str) -> None:
        claim = claimed(short, run)
        ledger.renew(claim, rows=5)

        assert ledger.claim(run, A.name, "w2") is Refusal.RUNNING

    def test_the_same_owner_may_claim_again_since_its_child_is_dead(self, ledger: Ledger, run: str) -> None:
        dead = claimed(ledger, run)

        again = claimed(ledger, run)

        assert again.attempt == 2
        with pytest.raises(LeaseLost):
            ledger.renew(dead, rows=1)
        ledger.renew(again, rows=1)

    @pytest.mark.parametrize(("run_id", "name"), [("nope", "a"), (None, "nope")])
    def test_a_message_that_outlived_its_run_is_refused(
        self, ledger: Ledger, run: str, run_id: str | None, name: str
    ) -> None:
        assert ledger.claim(run_id or run, name, "w1") is Refusal.UNKNOWN

    def test_done_and_failed_shards_are_refused(self, ledger: Ledger, run: str) -> None:
        ledger.complete(claimed(ledger, run, A), a_receipt(run, A))
        ledger.fail(claimed(ledger, run, B), "broken", "")

        assert ledger.claim(run, A.name, "w1") is Refusal.DONE
        assert ledger.claim(run, B.name, "w1") is Refusal.FAILED

    def test_a_worker_that_vanishes_in_every_attempt_fails_the_shard(
        self, ledger: Ledger, short: Ledger, run: str
    ) -> None:
        for attempt in (1, 2, 3):
            assert claimed_when_free(short, run, owner=f"w{attempt}").attempt == attempt

        wait_until(lambda: ledger.claim(run, A.name, "w4") is Refusal.FAILED, description="the fourth claim fails it")

        (failure,) = ledger.failures(run)
        assert failure.shard == A.name
        assert failure.worker == "w3"
        assert failure.attempts == 3
        assert "vanished in each of 3 attempts" in failure.error
        assert ledger.counts(run).failed == 1

    def test_a_shard_failed_for_its_crashes_takes_no_late_receipt(
        self, ledger: Ledger, short: Ledger, run: str
    ) -> None:
        claims = [claimed_when_free(short, run, owner=f"w{attempt}") for attempt in (1, 2, 3)]
        wait_until(lambda: ledger.claim(run, A.name, "w4") is Refusal.FAILED, description="the fourth claim fails it")

        with pytest.raises(LeaseLost):
            ledger.complete(claims[-1], a_receipt(run, A))

        counts = ledger.counts(run)
        assert (counts.queued, counts.running, counts.done, counts.failed) == (2, 0, 0, 1)


class TestLateWriters:
    @pytest.fixture
    def stale(self, ledger: Ledger, short: Ledger, run: str) -> Claim:
        """A claim whose shard another worker took over."""
        stale = claimed(short, run)
        claimed_when_free(ledger, run, owner="w2")
        return stale

    def test_a_stale_token_cannot_renew(self, ledger: Ledger, stale: Claim) -> None:
        with pytest.raises(LeaseLost, match="another attempt took it over"):
            ledger.renew(stale, rows=1)

    def test_a_stale_token_cannot_complete_a_shard(self, ledger: Ledger, run: str, stale: Claim) -> None:
        with pytest.raises(LeaseLost, match="finished by another attempt"):
            ledger.complete(stale, a_receipt(run, A))

        assert ledger.counts(run).done == 0
        assert list(ledger.receipts(run)) == []

    def test_a_stale_token_cannot_give_the_shard_back(self, ledger: Ledger, run: str, stale: Claim) -> None:
        ledger.release(stale)
        ledger.retry_later(stale, "slow", "")
        ledger.fail(stale, "broken", "")

        counts = ledger.counts(run)
        assert (counts.queued, counts.running, counts.failed) == (2, 1, 0)
        assert ledger.claim(run, A.name, "w3") is Refusal.RUNNING

    def test_a_swept_lease_is_stale_before_anybody_else_claims(self, ledger: Ledger, short: Ledger, run: str) -> None:
        claim = claimed(short, run)
        wait_until(lambda: A.name in due(ledger, run), description="the sweep finds the lease run out", seconds=5)

        with pytest.raises(LeaseLost):
            ledger.renew(claim, rows=1)
        with pytest.raises(LeaseLost):
            ledger.complete(claim, a_receipt(run, A))

    def test_a_lease_that_ran_out_unnoticed_still_completes(self, ledger: Ledger, short: Ledger, run: str) -> None:
        claim = claimed(short, run)

        short.complete(claim, a_receipt(run, A))

        assert ledger.counts(run).done == 1


class TestCompletion:
    def test_it_tells_how_many_shards_are_open(self, ledger: Ledger, run: str) -> None:
        due(ledger, run)

        assert [ledger.complete(claimed(ledger, run, s), a_receipt(run, s)) for s in (A, B, C)] == [2, 1, 0]

    def test_completing_twice_adds_its_rows_once(self, ledger: Ledger, run: str) -> None:
        claim = claimed(ledger, run)
        receipt = a_receipt(run, A)

        assert [ledger.complete(claim, receipt), ledger.complete(claim, receipt)] == [2, 2]

        counts = ledger.counts(run)
        assert (counts.rows_in, counts.rows_kept, counts.rows_dropped, counts.rows_errored) == (10, 6, 3, 1)
        assert counts.done == 1

    def test_another_receipt_of_a_done_shard_is_refused(self, ledger: Ledger, run: str) -> None:
        claim = claimed(ledger, run)
        ledger.complete(claim, a_receipt(run, A))

        with pytest.raises(LeaseLost):
            ledger.complete(claim, a_receipt(run, A, rows_kept=5, rows_dropped=4))

        assert [receipt.rows_kept for receipt in ledger.receipts(run)] == [6]

    def test_receipts_come_back_whole_in_the_order_of_names(self, ledger: Ledger, run: str) -> None:
        for shard in (C, A, B):
            ledger.complete(claimed(ledger, run, shard), a_receipt(run, shard))

        assert list(ledger.receipts(run)) == [a_receipt(run, shard) for shard in (A, B, C)]

    def test_an_earlier_error_is_forgotten(self, ledger: Ledger, client: redis.Redis, run: str) -> None:
        ledger.retry_later(claimed(ledger, run), "network", "trace")
        end_back_off(client, run)

        ledger.complete(claimed(ledger, run), a_receipt(run, A))

        assert ledger.failures(run) == []
        assert client.hget(f"shardsift:run:{run}:shard:a", "error") is None


class TestGivingBack:
    def test_a_released_shard_is_free_at_once_and_its_attempt_not_counted(self, ledger: Ledger, run: str) -> None:
        for owner in ("w1", "w2", "w3", "w4", "w5"):
            claim = claimed(ledger, run, owner=owner)
            assert claim.attempt == 1
            ledger.release(claim)

        assert ledger.counts(run).queued == 3

    def test_a_transient_error_is_waited_out(self, ledger: Ledger, run: str) -> None:
        ledger.retry_later(claimed(ledger, run), "network", "")

        assert ledger.claim(run, A.name, "w2") is Refusal.WAITING
        assert A.name not in due(ledger, run)
        assert ledger.counts(run).queued == 3

    def test_each_wait_is_four_times_as_long(self, ledger: Ledger, client: redis.Redis, run: str) -> None:
        waits = []
        for _ in (1, 2):
            ledger.retry_later(claimed(ledger, run), "network", "")
            seconds, microseconds = client.time()
            until = client.zscore(f"shardsift:run:{run}:waiting", A.name)
            waits.append(until / 1000 - seconds - microseconds / 1e6)
            end_back_off(client, run)

        assert waits == pytest.approx([5, 20], abs=2)

    def test_a_shard_whose_wait_is_over_is_due(self, ledger: Ledger, client: redis.Redis, run: str) -> None:
        ledger.retry_later(claimed(ledger, run), "network", "")
        end_back_off(client, run)

        assert A.name in due(ledger, run)
        assert claimed(ledger, run).attempt == 2

    def test_the_last_transient_error_fails_the_shard(self, ledger: Ledger, client: redis.Redis, run: str) -> None:
        for attempt in (1, 2, 3):
            open_shards = ledger.retry_later(claimed(ledger, run), f"network {attempt}", f"trace {attempt}")
            end_back_off(client, run)

        assert open_shards == 2
        (failure,) = ledger.failures(run)
        assert (failure.shard, failure.error, failure.traceback) == (A.name, "network 3", "trace 3")
        assert (failure.worker, failure.attempts) == ("w1", 3)
        assert ledger.claim(run, A.name, "w2") is Refusal.FAILED

    def test_a_hopeless_shard_fails_at_once(self, ledger: Ledger, run: str) -> None:
        assert ledger.fail(claimed(ledger, run), "corrupt", "trace") == 2

        assert [(failure.error, failure.attempts) for failure in ledger.failures(run)] == [("corrupt", 1)]

    def test_a_stop_after_an_error_leaves_that_attempt_counted(
        self, ledger: Ledger, client: redis.Redis, run: str
    ) -> None:
        ledger.retry_later(claimed(ledger, run), "network", "")
        end_back_off(client, run)

        ledger.release(claimed(ledger, run))

        assert claimed(ledger, run).attempt == 2


class TestDue:
    def test_waiting_shards_are_due_once(self, ledger: Ledger, run: str) -> None:
        assert sorted(due(ledger, run)) == [A.name, B.name, C.name]
        assert due(ledger, run) == []

    def test_a_sent_shard_can_be_claimed(self, ledger: Ledger, run: str) -> None:
        due(ledger, run)

        assert claimed(ledger, run).attempt == 1

    def test_a_lease_that_ran_out_is_due(self, ledger: Ledger, short: Ledger, run: str) -> None:
        due(ledger, run)
        claimed(short, run)

        assert wait_until(lambda: due(ledger, run), description="the lease runs out", seconds=5) == [A.name]
        assert ledger.counts(run).running == 0

    def test_a_running_shard_is_not_due(self, ledger: Ledger, run: str) -> None:
        due(ledger, run)
        claimed(ledger, run)

        assert A.name not in due(ledger, run, resend_seconds=0)
        assert ledger.counts(run).running == 1

    def test_a_message_is_sent_again_only_when_the_queue_is_empty(self, ledger: Ledger, run: str) -> None:
        due(ledger, run)

        def sent_again(*, queue_is_empty: bool) -> list[str]:
            return due(ledger, run, queue_is_empty=queue_is_empty, resend_seconds=0.01)

        assert wait_until(lambda: sent_again(queue_is_empty=True), description="messages grow old", seconds=5)
        wait_until(lambda: sent_age(ledger, run) > 0.05, description="they grow old again", seconds=5)
        assert sent_again(queue_is_empty=False) == []

    def test_a_young_message_is_not_sent_again(self, ledger: Ledger, run: str) -> None:
        due(ledger, run)

        assert due(ledger, run, queue_is_empty=True, resend_seconds=60) == []

    def test_done_and_failed_shards_are_never_due(self, ledger: Ledger, run: str) -> None:
        ledger.complete(claimed(ledger, run, A), a_receipt(run, A))
        ledger.fail(claimed(ledger, run, B), "broken", "")

        assert due(ledger, run) == [C.name]

    def test_two_sweeps_at_once_share_the_shards(self, redis_url: str, spec: RunSpec) -> None:
        ledger = Ledger.connect(Settings(redis_url=redis_url))
        ledger.create_run(spec, [a_shard(f"{number}") for number in range(3_000)], now=1.0)

        with ThreadPoolExecutor(6) as threads:
            taken = [name for names in threads.map(lambda _: due(ledger, spec.run_id), range(6)) for name in names]

        assert len(taken) == len(set(taken)) == 3_000

    def test_forgotten_messages_and_leases_are_due_at_once(self, ledger: Ledger, run: str) -> None:
        due(ledger, run)
        claim = claimed(ledger, run)

        ledger.forget_messages(run)

        assert sorted(due(ledger, run)) == [A.name, B.name, C.name]
        with pytest.raises(LeaseLost):
            ledger.complete(claim, a_receipt(run, A))


def sent_age(ledger: Ledger, run_id: str) -> float:
    """Seconds since the youngest message of a run was sent."""
    seconds, microseconds = ledger.redis.time()
    ((_, sent_ms),) = ledger.redis.zrange(f"shardsift:run:{run_id}:sent", -1, -1, withscores=True)
    return float(seconds + microseconds / 1e6 - sent_ms / 1000)


class TestCancelAndRetry:
    def test_a_cancelled_run_stops_its_workers_and_sends_nothing(self, ledger: Ledger, run: str) -> None:
        claim = claimed(ledger, run)

        ledger.cancel(run)

        assert ledger.is_cancelled(run)
        with pytest.raises(LeaseLost, match="the run was cancelled"):
            ledger.renew(claim, rows=1)
        assert ledger.claim(run, B.name, "w2") is Refusal.CANCELLED
        assert due(ledger, run) == []

    def test_a_shard_that_was_done_when_its_run_was_cancelled_counts(self, ledger: Ledger, run: str) -> None:
        claim = claimed(ledger, run)
        ledger.cancel(run)

        ledger.complete(claim, a_receipt(run, A))

        assert ledger.counts(run).done == 1

    @pytest.mark.parametrize("how", ["retry", "create_run"])
    def test_a_cancelled_run_is_taken_up_again(self, ledger: Ledger, spec: RunSpec, run: str, how: str) -> None:
        ledger.cancel(run)

        if how == "retry":
            ledger.retry(run)
        else:
            ledger.create_run(spec, [A, B, C], now=time.time())

        assert not ledger.is_cancelled(run)
        assert sorted(due(ledger, run)) == [A.name, B.name, C.name]

    def test_failed_shards_are_retried_with_fresh_attempts(self, ledger: Ledger, client: redis.Redis, run: str) -> None:
        ledger.fail(claimed(ledger, run), "corrupt", "")
        ledger.complete(claimed(ledger, run, B), a_receipt(run, B))

        assert ledger.retry(run) == 1

        assert ledger.failures(run) == []
        assert sorted(due(ledger, run)) == [A.name, C.name]
        assert claimed(ledger, run).attempt == 1

    def test_a_retried_shard_has_forgotten_its_error(self, ledger: Ledger, short: Ledger, run: str) -> None:
        ledger.fail(claimed(ledger, run), "corrupt", "trace")
        ledger.retry(run)

        for attempt in (1, 2, 3):
            claimed_when_free(short, run, owner=f"w{attempt}")
        wait_until(lambda: ledger.claim(run, A.name, "w4") is Refusal.FAILED, description="the fourth claim fails it")

        (failure,) = ledger.failures(run)
        assert "vanished" in failure.error
        assert failure.traceback == ""

    def test_retrying_twice_does_nothing_more(self, ledger: Ledger, run: str) -> None:
        ledger.fail(claimed(ledger, run), "corrupt", "")

        assert [ledger.retry(run), ledger.retry(run)] == [1, 0]
        assert ledger.counts(run).queued == 3


class TestCounts:
    def test_a_new_run_is_all_queued(self, ledger: Ledger, run: str) -> None:
        counts = ledger.counts(run)

        assert (counts.shards, counts.queued, counts.open, counts.done, counts.seconds) == (3, 3, 3, 0, 0.0)

    def test_rows_of_running_shards_are_seen_and_not_counted_twice(self, ledger: Ledger, run: str) -> None:
        claim = claimed(ledger, run)
        ledger.renew(claim, rows=7)
        ledger.renew(claimed(ledger, run, B), rows=4)
        before = ledger.counts(run)

        ledger.complete(claim, a_receipt(run, A))

        assert (before.rows_running, before.rows_scored) == (11, 11)
        after = ledger.counts(run)
        assert (after.rows_running, after.rows_in, after.rows_scored) == (4, 10, 14)

    def test_rows_of_a_dead_attempt_do_not_stay(self, ledger: Ledger, run: str) -> None:
        ledger.renew(claimed(ledger, run), rows=7)

        claimed(ledger, run)

        assert ledger.counts(run).rows_running == 0

    def test_time_stands_still_when_nothing_is_open(self, ledger: Ledger, run: str) -> None:
        for shard in (A, B, C):
            ledger.complete(claimed(ledger, run, shard), a_receipt(run, shard))
        seconds, now = ledger.counts(run).seconds, time.monotonic()

        wait_until(lambda: time.monotonic() > now + 0.02, description="some time passes")

        assert ledger.counts(run).seconds == seconds

    def test_no_counts_are_those_of_no_run(self, ledger: Ledger) -> None:
        assert ledger.counts("nope").shards == 0


class TestPublication:
    def test_a_publication_is_remembered_and_clears_the_last_error(self, ledger: Ledger, run: str) -> None:
        publication = Publication(uri="hf://datasets/a/b", commit="c0ffee", shards=3)
        ledger.record_publish_error(run, "the Hub answered 503")

        ledger.record_publication(run, publication)

        assert ledger.publication(run) == publication
        assert ledger.publish_error(run) is None

    def test_new_shards_make_it_unpublished(self, ledger: Ledger, spec: RunSpec, run: str) -> None:
        ledger.record_publication(run, Publication(uri="x", commit="", shards=3))

        ledger.create_run(spec, [A, B, C], now=time.time())
        assert ledger.publication(run) is not None
        ledger.create_run(spec, [A, B, C, a_shard("e")], now=time.time())
        assert ledger.publication(run) is None


class TestConnecting:
    def test_no_redis_named_says_how_to_name_one(self) -> None:
        with pytest.raises(UsageError, match="Set REDIS_URL"):
            Ledger.connect(Settings(redis_url=None))

    @pytest.mark.parametrize(
        ("url", "address"),
        [
            ("redis://:s3cret@127.0.0.1:1/0", "127.0.0.1:1"),
            ("redis://user:s3cret@127.0.0.1:1/0", "127.0.0.1:1"),
            ("redis://:s3cret%40x@127.0.0.1:1/0", "127.0.0.1:1"),
            ("redis://127.0.0.1:1/0?password=s3cret", "127.0.0.1:1"),
            ("rediss://:s3cret@127.0.0.1:1/0", "127.0.0.1:1"),
            ("unix://:s3cret@/nowhere/redis.sock", "/nowhere/redis.sock"),
            ("unix:///nowhere/redis.sock?password=s3cret", "/nowhere/redis.sock"),
            ("redis://:s3cret@no-such-host.invalid:6379/0", "no-such-host.invalid:6379"),
        ],
    )
    def test_a_redis_that_does_not_answer_is_named_without_its_password(self, url: str, address: str) -> None:
        with pytest.raises(UsageError) as refused:
            Ledger.connect(Settings(redis_url=url))

        message = str(refused.value)
        assert f"No Redis answers at {address}" in message
        assert "s3cret" not in message
        assert "\n" not in message

    @pytest.mark.parametrize(
        "url",
        [
            "http://:s3cret@host:1",
            "host:6379",
            "redis://:s3cret/x@host:6379/0",
            "redis://:s3cret",
            "redis://:s3cret@host:port",
            "s3cret",
        ],
    )
    def test_what_is_no_url_of_a_redis_is_refused_without_its_password(self, url: str) -> None:
        with pytest.raises(UsageError, match="REDIS_URL") as refused:
            Ledger.connect(Settings(redis_url=url))

        assert "s3cret" not in str(refused.value)

    @pytest.mark.parametrize("url", ["unix://{}", "unix://:wr0ng@{}"])
    def test_a_wrong_or_missing_password_is_told_without_it(self, locked_socket: Path, url: str) -> None:
        with pytest.raises(UsageError, match="refuses the password") as refused:
            Ledger.connect(Settings(redis_url=url.format(locked_socket)))

        assert str(locked_socket) in str(refused.value)
        assert "wr0ng" not in str(refused.value)

    def test_the_password_file_opens_it(self, locked_socket: Path, tmp_path: Path) -> None:
        (tmp_path / "password").write_text("correct horse/1@2\n")
        settings = Settings(redis_url=f"unix://{locked_socket}", redis_password_file=tmp_path / "password")

        assert Ledger.connect(settings).run_ids() == []

    def test_a_missing_password_file_is_named(self, tmp_path: Path) -> None:
        settings = Settings(redis_url="redis://127.0.0.1:1", redis_password_file=tmp_path / "absent")

        with pytest.raises(UsageError, match="absent"):
            Ledger.connect(settings)
