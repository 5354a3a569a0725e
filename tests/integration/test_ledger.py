"""Each promise of the ledger, held against a real Redis. Redis' clock cannot be moved, so what it wrote is aged."""

import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from fleet.errors import LeaseLost, RunUnknown, UsageError
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
LEASE_SECONDS, SWEEP_SECONDS = 60.0, 15.0
OUTAGE_SECONDS = 3 * SWEEP_SECONDS  # nobody looked for longer: Redis was away
REFUSED_OUTPUTS = "outputs of attempts that had lost their shard"


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
    return Ledger(client, lease_seconds=LEASE_SECONDS, sweep_seconds=SWEEP_SECONDS)


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


def again(ledger: Ledger, run_id: str, *, room: int = 0) -> list[str]:
    """The shards that are due once more, though there is no room for fresh ones."""
    return ledger.take_due(run_id, room=room).again


def fresh(ledger: Ledger, run_id: str, *, room: int = 2_000) -> list[str]:
    return ledger.take_due(run_id, room=room).fresh


def resent(ledger: Ledger, run_id: str, *, resend_seconds: float = 60.0) -> list[str]:
    """Due once more because their messages, of this age, are in no queue."""
    lost = ledger.sent_before(run_id, seconds=resend_seconds)
    assert ledger.queue_again(run_id, lost, seconds=resend_seconds) == len(lost)
    return again(ledger, run_id)


def redis_ms(client: redis.Redis) -> int:
    seconds, microseconds = client.time()
    return int(seconds * 1000 + microseconds // 1000)


def end_lease(client: redis.Redis, run_id: str, shard: Shard = A, *, seconds_ago: float = 0.001) -> None:
    ended = redis_ms(client) - seconds_ago * 1000
    assert client.zadd(f"shardsift:run:{run_id}:running", {shard.name: ended}, xx=True, ch=True) == 1


def end_back_off(client: redis.Redis, run_id: str, shard: Shard = A) -> None:
    client.zadd(f"shardsift:run:{run_id}:waiting", {shard.name: 1}, xx=True)


def age_messages(client: redis.Redis, run_id: str, *, seconds: float = 100) -> None:
    sent = f"shardsift:run:{run_id}:sent"
    client.zadd(sent, dict.fromkeys(client.zrange(sent, 0, -1), redis_ms(client) - seconds * 1000))


def nobody_looked_for(client: redis.Redis, run_id: str, seconds: float) -> None:
    client.hset(f"shardsift:run:{run_id}", "looked_ms", int(redis_ms(client) - seconds * 1000))


def checkpoint_bytes(client: redis.Redis, run_id: str) -> int:
    return int(client.hget(f"shardsift:run:{run_id}", "checkpoint_bytes") or 0)


def refused_outputs(ledger: Ledger) -> int:
    return ledger.refused().get(REFUSED_OUTPUTS, 0)


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
        taken = [fresh(ledger, spec.run_id) for _ in range(4)]
        assert [len(names) for names in taken] == [1000, 1000, 345, 0]
        assert sorted(name for names in taken for name in names) == [shard.name for shard in shards]

    def test_a_run_whose_producer_died_midway_is_not_complete_until_written_again(
        self, ledger: Ledger, spec: RunSpec
    ) -> None:
        def listing_that_breaks_off() -> Iterator[Shard]:
            yield from (a_shard(f"{number:05}") for number in range(1_500))
            raise ConnectionError("the listing broke off")

        with pytest.raises(ConnectionError):
            ledger.create_run(spec, listing_that_breaks_off(), now=1.0)
        midway, was_complete = ledger.counts(spec.run_id).shards, ledger.is_enqueued(spec.run_id)
        ledger.create_run(spec, (a_shard(f"{number:05}") for number in range(1_600)), now=1.0)

        assert 0 < midway <= 1_500
        assert not was_complete
        assert (ledger.counts(spec.run_id).shards, ledger.is_enqueued(spec.run_id)) == (1_600, True)

    def test_no_run_is_not_a_complete_one(self, ledger: Ledger) -> None:
        assert not ledger.is_enqueued("nope")

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

    def test_a_shard_whose_lease_ran_out_is_anybodys(self, ledger: Ledger, client: redis.Redis, run: str) -> None:
        first = claimed(ledger, run)
        end_lease(client, run)

        second = claimed(ledger, run, owner="w2")

        assert second.attempt == 2
        assert second.token != first.token

    def test_a_renewed_lease_keeps_others_out(self, ledger: Ledger, client: redis.Redis, run: str) -> None:
        claim = claimed(ledger, run)
        end_lease(client, run)
        ledger.renew(claim, rows=5)

        assert ledger.claim(run, A.name, "w2") is Refusal.RUNNING

    def test_the_same_owner_may_claim_again_since_its_child_is_dead(self, ledger: Ledger, run: str) -> None:
        dead = claimed(ledger, run)

        alive = claimed(ledger, run)

        assert alive.attempt == 2
        with pytest.raises(LeaseLost):
            ledger.renew(dead, rows=1)
        ledger.renew(alive, rows=1)

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


class LossyConnection(redis.UnixDomainSocketConnection):
    """Loses as many answers as it is told to, after Redis did what it was asked."""

    answers_to_lose = 0

    def read_response(self, *args: object, **kwargs: object) -> object:
        answer = super().read_response(*args, **kwargs)
        if LossyConnection.answers_to_lose:
            LossyConnection.answers_to_lose -= 1
            raise redis.ConnectionError("The answer was lost.")
        return answer


class TestLostAnswers:
    """The client asks again, and does not know that it was heard the first time."""

    @pytest.fixture
    def lossy(self, redis_url: str, run: str) -> Iterator[Ledger]:
        """A ledger on a bad line; `run` is written and its scripts are loaded before."""
        retry = Retry(NoBackoff(), 1)
        with redis.Redis.from_url(
            redis_url, decode_responses=True, connection_class=LossyConnection, retry=retry
        ) as client:
            lossy = Ledger(client)
            warm_up(lossy, run)
            yield lossy
        assert LossyConnection.answers_to_lose == 0

    def test_a_claim_asked_for_twice_is_one_claim(self, ledger: Ledger, lossy: Ledger, run: str) -> None:
        LossyConnection.answers_to_lose = 1

        claim = claimed(lossy, run)

        assert claim.attempt == 1
        ledger.renew(claim, rows=1)
        ledger.release(claim)
        assert claimed(ledger, run).attempt == 1

    def test_an_error_told_twice_is_one_error(
        self, ledger: Ledger, client: redis.Redis, lossy: Ledger, run: str
    ) -> None:
        claim = claimed(ledger, run)
        LossyConnection.answers_to_lose = 1

        lossy.retry_later(claim, "network", "")

        assert client.hget(f"shardsift:run:{run}:attempts:{A.name}", "errors") == "1"

    def test_a_receipt_handed_in_twice_counts_once(self, ledger: Ledger, lossy: Ledger, run: str) -> None:
        claim = claimed(ledger, run)
        LossyConnection.answers_to_lose = 1

        assert lossy.complete(claim, a_receipt(run, A)) == 2

        assert ledger.counts(run).rows_in == 10
        assert ledger.counts(run).done == 1


def warm_up(ledger: Ledger, run_id: str) -> None:
    """A first call opens the connection, and each script's first call may load it."""
    stale = claimed(ledger, run_id, B, owner="warm-up")
    ledger.retry_later(stale, "", "")
    with pytest.raises(LeaseLost):
        ledger.complete(stale, a_receipt(run_id, B))


class TestZombies:
    """Workers that were silent for longer than their lease, and come back."""

    @pytest.fixture
    def zombie(self, ledger: Ledger, client: redis.Redis, run: str) -> Claim:
        """Its lease ran out, a sweep found that, and nobody has taken the shard yet."""
        claim = claimed(ledger, run)
        end_lease(client, run)
        assert again(ledger, run) == [A.name]
        return claim

    def test_it_takes_back_a_shard_that_nobody_took(self, ledger: Ledger, run: str, zombie: Claim) -> None:
        ledger.renew(zombie, rows=3)

        assert ledger.claim(run, A.name, "w2") is Refusal.RUNNING
        assert ledger.complete(zombie, a_receipt(run, A)) == 2
        assert ledger.counts(run).done == 1

    def test_its_receipt_counts_while_nobody_took_the_shard(self, ledger: Ledger, run: str, zombie: Claim) -> None:
        ledger.complete(zombie, a_receipt(run, A))

        counts = ledger.counts(run)
        assert (counts.queued, counts.running, counts.done, counts.rows_in) == (2, 0, 1, 10)

    def test_a_lease_that_ran_out_unnoticed_still_completes(
        self, ledger: Ledger, client: redis.Redis, run: str
    ) -> None:
        claim = claimed(ledger, run)
        end_lease(client, run)

        ledger.complete(claim, a_receipt(run, A))

        assert ledger.counts(run).done == 1

    def test_its_stop_takes_back_the_crash_that_the_sweep_saw(self, ledger: Ledger, run: str, zombie: Claim) -> None:
        ledger.release(zombie)

        assert claimed(ledger, run, owner="w2").attempt == 1

    def test_an_attempt_that_was_given_back_cannot_be_renewed(self, ledger: Ledger, run: str) -> None:
        claim = claimed(ledger, run)
        ledger.release(claim)

        with pytest.raises(LeaseLost):
            ledger.renew(claim, rows=1)

        assert ledger.counts(run).running == 0


class TestLateWriters:
    """Zombies whose shard another worker took."""

    @pytest.fixture
    def stale(self, ledger: Ledger, client: redis.Redis, run: str) -> Claim:
        stale = claimed(ledger, run)
        end_lease(client, run)
        claimed(ledger, run, owner="w2")
        return stale

    def test_a_stale_token_cannot_renew(self, ledger: Ledger, stale: Claim) -> None:
        with pytest.raises(LeaseLost, match="another attempt took it over"):
            ledger.renew(stale, rows=1)

    def test_a_stale_token_cannot_save_scores(self, ledger: Ledger, stale: Claim) -> None:
        with pytest.raises(LeaseLost):
            ledger.save_scores(stale, 0, b"late")

        assert ledger.saved_scores(stale) == {}

    def test_a_stale_token_cannot_complete_a_shard_and_that_is_counted(
        self, ledger: Ledger, run: str, stale: Claim
    ) -> None:
        before = refused_outputs(ledger)

        with pytest.raises(LeaseLost, match="finished by another attempt"):
            ledger.complete(stale, a_receipt(run, A))

        assert ledger.counts(run).done == 0
        assert list(ledger.receipts(run)) == []
        assert refused_outputs(ledger) == before + 1

    def test_a_stale_token_cannot_give_the_shard_back(self, ledger: Ledger, run: str, stale: Claim) -> None:
        ledger.release(stale)
        ledger.retry_later(stale, "slow", "")
        ledger.record_crash(stale, "odd", "")
        ledger.fail(stale, "broken", "")

        counts = ledger.counts(run)
        assert (counts.queued, counts.running, counts.failed) == (2, 1, 0)
        assert ledger.claim(run, A.name, "w3") is Refusal.RUNNING

    def test_it_stays_out_when_the_other_gives_the_shard_back(
        self, ledger: Ledger, client: redis.Redis, run: str
    ) -> None:
        stale = claimed(ledger, run)
        end_lease(client, run)
        ledger.release(claimed(ledger, run, owner="w2"))

        with pytest.raises(LeaseLost):
            ledger.renew(stale, rows=1)
        with pytest.raises(LeaseLost):
            ledger.complete(stale, a_receipt(run, A))

    def test_a_forged_token_opens_only_what_nobody_holds_and_the_ledger_may_have_forgotten(
        self, ledger: Ledger, run: str
    ) -> None:
        held = claimed(ledger, run, A)
        never_issued = replace(held, shard=B, token=f"{held.token.partition('-')[0]}-abc")

        for forged in (replace(held, token="999-abc"), never_issued, replace(held, shard=B, token="abc")):
            with pytest.raises(LeaseLost):
                ledger.renew(forged, rows=1)
            with pytest.raises(LeaseLost):
                ledger.complete(forged, a_receipt(run, forged.shard))
        ledger.renew(replace(held, shard=B, token="999-abc"), rows=1)

        assert ledger.counts(run).done == 0

    def test_a_shard_failed_for_its_crashes_takes_no_late_receipt(
        self, ledger: Ledger, client: redis.Redis, run: str
    ) -> None:
        for attempt in (1, 2, 3):
            last = claimed(ledger, run, owner=f"w{attempt}")
            end_lease(client, run)
            again(ledger, run)

        with pytest.raises(LeaseLost):
            ledger.complete(last, a_receipt(run, A))

        counts = ledger.counts(run)
        assert (counts.queued, counts.running, counts.done, counts.failed) == (2, 0, 0, 1)


class TestLossOfRedis:
    """Redis came back from an older state or from none, while workers went on."""

    @pytest.fixture
    def lose_all(self, client: redis.Redis, ledger: Ledger, spec: RunSpec) -> Callable[[], None]:
        """Redis comes back empty, and the run is enqueued again."""

        def lose_all() -> None:
            client.flushall()
            client.script_flush()
            ledger.create_run(spec, [A, B, C], now=time.time())

        return lose_all

    def test_a_run_that_is_gone_is_told_as_such(self, ledger: Ledger, client: redis.Redis, run: str) -> None:
        claim = claimed(ledger, run)

        client.flushall()

        with pytest.raises(RunUnknown, match="producer enqueue"):
            ledger.renew(claim, rows=1)
        with pytest.raises(RunUnknown):
            ledger.complete(claim, a_receipt(run, A))
        assert client.keys() == []

    def test_a_run_that_is_being_written_again_is_not_yet_known(
        self, ledger: Ledger, client: redis.Redis, spec: RunSpec, run: str
    ) -> None:
        claim = claimed(ledger, run, C)
        client.flushall()
        ledger.create_run(spec, [A], now=time.time())

        with pytest.raises(RunUnknown):
            ledger.renew(claim, rows=1)
        with pytest.raises(RunUnknown):
            ledger.complete(claim, a_receipt(run, C))

        ledger.create_run(spec, [A, B, C], now=time.time())
        ledger.renew(claim, rows=1)

    def test_all_workers_go_on_when_the_run_is_there_again(
        self, ledger: Ledger, run: str, lose_all: Callable[[], None]
    ) -> None:
        claims = [claimed(ledger, run, shard, owner=f"w-{shard.name}") for shard in (A, B, C)]

        lose_all()
        for claim in reversed(claims):
            ledger.renew(claim, rows=5)

        assert (ledger.counts(run).running, ledger.counts(run).rows_running) == (3, 15)
        assert ledger.claim(run, A.name, "w4") is Refusal.RUNNING
        assert [ledger.complete(claim, a_receipt(run, claim.shard)) for claim in claims] == [2, 1, 0]

    def test_a_receipt_counts_though_the_claim_was_forgotten(
        self, ledger: Ledger, run: str, lose_all: Callable[[], None]
    ) -> None:
        claim = claimed(ledger, run)

        lose_all()

        assert ledger.complete(claim, a_receipt(run, A)) == 2

    def test_whoever_claims_first_has_it(self, ledger: Ledger, run: str, lose_all: Callable[[], None]) -> None:
        before = claimed(ledger, run, owner="w1")

        lose_all()
        after = claimed(ledger, run, owner="w2")

        assert after.token != before.token
        for refused in (lambda: ledger.renew(before, rows=1), lambda: ledger.complete(before, a_receipt(run, A))):
            with pytest.raises(LeaseLost):
                refused()
        ledger.renew(after, rows=1)

    def test_tokens_are_unique_though_their_numbers_begin_anew(
        self, ledger: Ledger, run: str, lose_all: Callable[[], None]
    ) -> None:
        tokens = []
        for _ in range(3):
            tokens += [claimed(ledger, run, shard).token for shard in (A, B, C)]
            lose_all()

        assert len(set(tokens)) == 9

    def test_a_claim_taken_back_counts_as_one(
        self, ledger: Ledger, client: redis.Redis, run: str, lose_all: Callable[[], None]
    ) -> None:
        stopped, broken = claimed(ledger, run, A), claimed(ledger, run, B)
        lose_all()
        ledger.renew(stopped, rows=1)
        ledger.renew(broken, rows=1)

        ledger.release(stopped)
        ledger.record_crash(broken, "odd", "")
        end_back_off(client, run, B)

        assert claimed(ledger, run, A).attempt == 1
        assert claimed(ledger, run, B).attempt == 2

    def test_a_stop_under_way_is_not_undone_by_a_late_renewal(
        self, ledger: Ledger, run: str, lose_all: Callable[[], None]
    ) -> None:
        claim = claimed(ledger, run)
        lose_all()
        ledger.renew(claim, rows=1)
        ledger.release(claim)

        with pytest.raises(LeaseLost):
            ledger.renew(claim, rows=1)

    def test_from_an_older_state_a_worker_goes_on_too(
        self, ledger: Ledger, client: redis.Redis, redis_url: str, run: str
    ) -> None:
        ledger.retry_later(claimed(ledger, run, owner="w0"), "network", "")
        end_back_off(client, run)
        older = state_of(redis_url)
        claim = claimed(ledger, run, owner="w1")

        put_back(redis_url, older)
        ledger.renew(claim, rows=1)

        assert ledger.claim(run, A.name, "w0") is Refusal.RUNNING  # not the successor of its own earlier attempt
        ledger.complete(claim, a_receipt(run, A))
        assert ledger.counts(run).done == 1

    def test_a_claim_outlives_a_restart_with_the_data(self, spec: RunSpec, tmp_path: Path) -> None:
        with embedded_redis(tmp_path) as url:
            ledger = Ledger.connect(Settings(redis_url=url))
            ledger.create_run(spec, [A, B], now=1.0)
            claim = claimed(ledger, spec.run_id)
            ledger.save_scores(claim, 0, b"\xff\x00")
            ledger.redis.close()

        with embedded_redis(tmp_path) as url:
            ledger = Ledger.connect(Settings(redis_url=url))
            ledger.renew(claim, rows=1)
            saved = ledger.saved_scores(claim)
            still_open = ledger.complete(claim, a_receipt(spec.run_id, A))
            ledger.redis.close()

        assert (saved, still_open) == ({0: b"\xff\x00"}, 1)


def state_of(redis_url: str) -> dict[bytes, bytes]:
    with redis.Redis.from_url(redis_url) as raw:
        return {key: raw.dump(key) for key in raw.scan_iter()}


def put_back(redis_url: str, state: dict[bytes, bytes]) -> None:
    with redis.Redis.from_url(redis_url) as raw:
        raw.flushall()
        for key, value in state.items():
            raw.restore(key, 0, value)


class TestCompletion:
    def test_it_tells_how_many_shards_are_open(self, ledger: Ledger, run: str) -> None:
        fresh(ledger, run)

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
        assert client.exists(f"shardsift:run:{run}:attempts:{A.name}") == 0


class TestStops:
    def test_a_released_shard_is_free_at_once_and_its_attempt_not_counted(self, ledger: Ledger, run: str) -> None:
        for owner in ("w1", "w2", "w3", "w4", "w5"):
            claim = claimed(ledger, run, owner=owner)
            assert claim.attempt == 1
            ledger.release(claim)

        assert ledger.counts(run).queued == 3

    def test_a_stop_after_an_error_leaves_that_attempt_counted(
        self, ledger: Ledger, client: redis.Redis, run: str
    ) -> None:
        ledger.retry_later(claimed(ledger, run), "network", "")
        end_back_off(client, run)

        ledger.release(claimed(ledger, run))

        assert claimed(ledger, run).attempt == 2

    def test_stops_do_not_add_to_earlier_crashes(self, ledger: Ledger, client: redis.Redis, run: str) -> None:
        for _ in (1, 2):
            crash_by_report(ledger, client, run)

        for _ in range(5):
            ledger.release(claimed(ledger, run))

        assert claimed(ledger, run).attempt == 3

    def test_whoever_ends_all_workers_at_once_makes_no_shard_fail(self, ledger: Ledger, run: str) -> None:
        for _ in range(5):
            claimed(ledger, run)
            ledger.forget_messages(run)
            assert again(ledger, run) == [A.name]

        assert ledger.counts(run).failed == 0
        assert claimed(ledger, run).attempt == 1


class TestErrors:
    """Network, disk or service: it may pass by itself."""

    def test_an_error_is_waited_out(self, ledger: Ledger, run: str) -> None:
        ledger.retry_later(claimed(ledger, run), "network", "")

        assert ledger.claim(run, A.name, "w2") is Refusal.WAITING
        assert again(ledger, run) == []
        assert ledger.counts(run).queued == 3

    def test_each_wait_is_four_times_as_long_up_to_ten_minutes_and_the_eighth_error_fails(
        self, ledger: Ledger, client: redis.Redis, run: str
    ) -> None:
        waits = []
        for number in range(1, 8):
            assert ledger.retry_later(claimed(ledger, run), f"network {number}", "") == 3
            due_ms = client.zscore(f"shardsift:run:{run}:waiting", A.name)
            waits.append((due_ms - redis_ms(client)) / 1000)
            end_back_off(client, run)
        open_shards = ledger.retry_later(claimed(ledger, run), "network 8", "trace 8")

        assert waits == pytest.approx([5, 20, 80, 320, 600, 600, 600], abs=2)
        assert open_shards == 2
        (failure,) = ledger.failures(run)
        assert (failure.shard, failure.error, failure.traceback) == (A.name, "network 8", "trace 8")
        assert (failure.worker, failure.attempts) == ("w1", 8)
        assert ledger.claim(run, A.name, "w2") is Refusal.FAILED

    def test_a_shard_whose_wait_is_over_is_due(self, ledger: Ledger, client: redis.Redis, run: str) -> None:
        ledger.retry_later(claimed(ledger, run), "network", "")
        end_back_off(client, run)

        assert again(ledger, run) == [A.name]
        assert claimed(ledger, run).attempt == 2

    def test_errors_do_not_add_to_crashes_nor_crashes_to_errors(
        self, ledger: Ledger, client: redis.Redis, run: str
    ) -> None:
        for _ in (1, 2):
            crash_by_report(ledger, client, run)
        for _ in range(7):
            ledger.retry_later(claimed(ledger, run), "network", "")
            end_back_off(client, run)

        assert ledger.counts(run).failed == 0
        assert claimed(ledger, run).attempt == 10

    def test_a_non_retryable_shard_fails_at_once(self, ledger: Ledger, run: str) -> None:
        assert ledger.fail(claimed(ledger, run), "corrupt", "trace") == 2

        assert [(failure.error, failure.attempts) for failure in ledger.failures(run)] == [("corrupt", 1)]


def crash_by_expiry(ledger: Ledger, client: redis.Redis, run_id: str, *, worker: str = "w1") -> None:
    """The whole machine died, and a sweep found the lease run out."""
    claimed(ledger, run_id, owner=worker)
    end_lease(client, run_id)
    again(ledger, run_id)


def crash_by_report(ledger: Ledger, client: redis.Redis, run_id: str, *, worker: str = "w1") -> None:
    """The worker's parent saw its child die."""
    claimed(ledger, run_id, owner=worker)
    ledger.report_crash(run_id, A.name, worker, "killed by signal 9", "the child's last words")


def crash_by_exception(ledger: Ledger, client: redis.Redis, run_id: str, *, worker: str = "w1") -> None:
    ledger.record_crash(claimed(ledger, run_id, owner=worker), "KeyError: 7", "trace")
    end_back_off(client, run_id)


class TestCrashes:
    @pytest.mark.parametrize(
        ("crash", "error", "traceback"),
        [
            (crash_by_expiry, "Its worker vanished: no word for as long as a lease lasts.", ""),
            (crash_by_report, "killed by signal 9", "the child's last words"),
            (crash_by_exception, "KeyError: 7", "trace"),
        ],
    )
    def test_the_third_crash_fails_the_shard(
        self,
        ledger: Ledger,
        client: redis.Redis,
        run: str,
        crash: Callable[..., None],
        error: str,
        traceback: str,
    ) -> None:
        for number in (1, 2, 3):
            assert ledger.counts(run).failed == 0
            crash(ledger, client, run, worker=f"w{number}")

        (failure,) = ledger.failures(run)
        assert (failure.shard, failure.error, failure.traceback) == (A.name, error, traceback)
        assert (failure.worker, failure.attempts) == ("w3", 3)
        assert ledger.claim(run, A.name, "w4") is Refusal.FAILED
        assert ledger.counts(run).open == 2

    def test_a_worker_whose_child_dies_each_time_fails_the_shard_with_its_fourth_claim(
        self, ledger: Ledger, run: str
    ) -> None:
        assert [claimed(ledger, run).attempt for _ in range(3)] == [1, 2, 3]

        assert ledger.claim(run, A.name, "w1") is Refusal.FAILED
        (failure,) = ledger.failures(run)
        assert (failure.worker, failure.attempts) == ("w1", 3)
        assert failure.error == "The process that scored it ended without a word."

    def test_crashes_of_all_kinds_add_up(self, ledger: Ledger, client: redis.Redis, run: str) -> None:
        crash_by_expiry(ledger, client, run)
        crash_by_exception(ledger, client, run)
        crash_by_report(ledger, client, run)

        assert ledger.counts(run).failed == 1

    def test_a_crash_told_by_exception_waits_like_an_error(self, ledger: Ledger, run: str) -> None:
        ledger.record_crash(claimed(ledger, run), "KeyError: 7", "trace")

        assert ledger.claim(run, A.name, "w2") is Refusal.WAITING

    def test_a_reported_crash_frees_the_shard_at_once(self, ledger: Ledger, run: str) -> None:
        dead = claimed(ledger, run)

        assert ledger.report_crash(run, A.name, "w1", "killed by signal 9") == 3

        with pytest.raises(LeaseLost):
            ledger.renew(dead, rows=1)
        assert claimed(ledger, run, owner="w2").attempt == 2

    def test_a_report_is_of_the_owners_own_shard_and_counts_once(self, ledger: Ledger, run: str) -> None:
        claim = claimed(ledger, run, owner="w1")

        ledger.report_crash(run, A.name, "w2", "killed by signal 9")
        ledger.renew(claim, rows=1)
        for _ in range(4):
            ledger.report_crash(run, A.name, "w1", "killed by signal 9")

        assert ledger.counts(run).failed == 0
        assert claimed(ledger, run).attempt == 2

    def test_fewer_crashes_are_enough_where_a_setting_says_so(self, client: redis.Redis, run: str) -> None:
        strict = Ledger(client, max_attempts=1)

        crash_by_report(strict, client, run)

        assert strict.counts(run).failed == 1


class TestDue:
    def test_fresh_shards_are_due_once_as_far_as_there_is_room(self, ledger: Ledger, run: str) -> None:
        assert fresh(ledger, run, room=0) == []
        assert fresh(ledger, run, room=2) == [A.name, B.name]
        assert fresh(ledger, run) == [C.name]
        assert fresh(ledger, run) == []

    def test_shards_that_were_begun_are_due_whatever_room_there_is(
        self, ledger: Ledger, client: redis.Redis, run: str
    ) -> None:
        ledger.release(claimed(ledger, run, A))
        claimed(ledger, run, B)
        end_lease(client, run, B)
        ledger.retry_later(claimed(ledger, run, C), "network", "")
        end_back_off(client, run, C)

        due = ledger.take_due(run, room=0)

        assert sorted(due.again) == [A.name, B.name, C.name]
        assert (due.fresh, len(due)) == ([], 3)
        assert ledger.counts(run).running == 0

    def test_a_sent_shard_can_be_claimed(self, ledger: Ledger, run: str) -> None:
        fresh(ledger, run)

        assert claimed(ledger, run).attempt == 1

    def test_a_running_shard_is_not_due(self, ledger: Ledger, client: redis.Redis, run: str) -> None:
        fresh(ledger, run)
        claimed(ledger, run)
        age_messages(client, run)

        assert sorted(resent(ledger, run)) == [B.name, C.name]
        assert ledger.counts(run).running == 1

    def test_a_shard_that_was_claimed_or_sent_again_meanwhile_is_not_lost(
        self, ledger: Ledger, client: redis.Redis, run: str
    ) -> None:
        fresh(ledger, run)
        age_messages(client, run)
        lost = ledger.sent_before(run, seconds=60)
        claimed(ledger, run, A)
        ledger.queue_again(run, [B.name], seconds=60)
        again(ledger, run)

        assert sorted(lost) == [A.name, B.name, C.name]
        assert ledger.queue_again(run, lost, seconds=60) == 1
        assert again(ledger, run) == [C.name]

    def test_a_young_message_is_not_sent_again(self, ledger: Ledger, client: redis.Redis, run: str) -> None:
        fresh(ledger, run)
        age_messages(client, run, seconds=50)

        assert resent(ledger, run, resend_seconds=60) == []

    def test_done_and_failed_shards_are_never_due(self, ledger: Ledger, run: str) -> None:
        ledger.complete(claimed(ledger, run, A), a_receipt(run, A))
        ledger.fail(claimed(ledger, run, B), "broken", "")

        due = ledger.take_due(run, room=10)

        assert (due.again, due.fresh) == ([], [C.name])

    def test_sweeps_at_once_share_the_shards(self, redis_url: str, spec: RunSpec) -> None:
        ledger = Ledger.connect(Settings(redis_url=redis_url))
        shards = [a_shard(f"{number:04}") for number in range(2_500)]
        ledger.create_run(spec, shards, now=1.0)
        for shard in shards[:500]:
            ledger.release(claimed(ledger, spec.run_id, shard))

        def sweep(_: int) -> list[str]:
            due = ledger.take_due(spec.run_id, room=1_000)
            return due.again + due.fresh

        with ThreadPoolExecutor(6) as threads:
            taken = [name for names in threads.map(sweep, range(6)) for name in names]

        assert len(taken) == len(set(taken)) == 2_500

    def test_forgotten_messages_and_leases_are_due_at_once(self, ledger: Ledger, run: str) -> None:
        fresh(ledger, run)
        ledger.release(claimed(ledger, run, B))
        assert again(ledger, run) == [B.name]
        claim = claimed(ledger, run)

        ledger.forget_messages(run)

        due = ledger.take_due(run, room=10)
        assert (sorted(due.again), due.fresh) == ([A.name, B.name], [C.name])
        with pytest.raises(LeaseLost):
            ledger.complete(claim, a_receipt(run, A))


class TestOutages:
    """Nobody could look for longer than three sweeps: Redis was away, and no worker could renew."""

    def test_leases_that_ran_out_meanwhile_get_one_more(self, ledger: Ledger, client: redis.Redis, run: str) -> None:
        claim = claimed(ledger, run)
        end_lease(client, run, seconds_ago=10)
        nobody_looked_for(client, run, OUTAGE_SECONDS + 5)

        assert again(ledger, run) == []

        lease_end = client.zscore(f"shardsift:run:{run}:running", A.name)
        assert (lease_end - redis_ms(client)) / 1000 == pytest.approx(LEASE_SECONDS, abs=2)
        assert ledger.claim(run, A.name, "w2") is Refusal.RUNNING
        ledger.renew(claim, rows=1)

    def test_but_only_one_however_seldom_anybody_looks(self, ledger: Ledger, client: redis.Redis, run: str) -> None:
        claimed(ledger, run)
        outcomes = []
        for _ in (1, 2):
            end_lease(client, run, seconds_ago=10)
            nobody_looked_for(client, run, OUTAGE_SECONDS + 5)
            outcomes.append(again(ledger, run))

        assert outcomes == [[], [A.name]]

    def test_whoever_renewed_since_is_spared_again(self, ledger: Ledger, client: redis.Redis, run: str) -> None:
        claim = claimed(ledger, run)
        for _ in (1, 2):
            end_lease(client, run, seconds_ago=10)
            nobody_looked_for(client, run, OUTAGE_SECONDS + 5)
            assert again(ledger, run) == []
            ledger.renew(claim, rows=1)

    def test_leases_that_had_run_out_before_are_due(self, ledger: Ledger, client: redis.Redis, run: str) -> None:
        claimed(ledger, run)
        end_lease(client, run, seconds_ago=OUTAGE_SECONDS + 10)
        nobody_looked_for(client, run, OUTAGE_SECONDS + 5)

        assert again(ledger, run) == [A.name]

    def test_a_pause_between_sweeps_is_no_outage(self, ledger: Ledger, client: redis.Redis, run: str) -> None:
        claimed(ledger, run)
        end_lease(client, run, seconds_ago=10)
        nobody_looked_for(client, run, OUTAGE_SECONDS - 5)

        assert again(ledger, run) == [A.name]

    def test_the_workers_of_a_large_fleet_are_all_spared(
        self, ledger: Ledger, client: redis.Redis, spec: RunSpec
    ) -> None:
        shards = [a_shard(f"{number:04}") for number in range(1_100)]
        ledger.create_run(spec, shards, now=1.0)
        for shard in shards:
            claimed(ledger, spec.run_id, shard, owner=f"w{shard.name}")
            end_lease(client, spec.run_id, shard, seconds_ago=10)
        nobody_looked_for(client, spec.run_id, OUTAGE_SECONDS + 5)

        assert [again(ledger, spec.run_id), again(ledger, spec.run_id)] == [[], []]
        assert ledger.counts(spec.run_id).running == 1_100


class TestCheckpoints:
    BYTES = bytes(range(256)) * 3 + b"\xff\xfe\r\n\x00"

    def test_scores_come_back_byte_for_byte(self, ledger: Ledger, run: str) -> None:
        claim = claimed(ledger, run)

        assert [ledger.save_scores(claim, 0, self.BYTES), ledger.save_scores(claim, 8192, b"")] == [True, True]

        assert ledger.saved_scores(claim) == {0: self.BYTES, 8192: b""}

    def test_a_later_save_replaces_a_windows_earlier_one(self, ledger: Ledger, client: redis.Redis, run: str) -> None:
        claim = claimed(ledger, run)
        for scores in (b"12345", b"1", b"123"):
            ledger.save_scores(claim, 0, scores)

        assert ledger.saved_scores(claim) == {0: b"123"}
        assert checkpoint_bytes(client, run) == 3

    def test_a_run_keeps_so_many_bytes_and_no_more(self, client: redis.Redis, run: str) -> None:
        small = Ledger(client, checkpoint_bytes=100)
        first, second = claimed(small, run, A), claimed(small, run, B)

        saved = [
            small.save_scores(first, 0, bytes(60)),
            small.save_scores(second, 0, bytes(41)),
            small.save_scores(second, 0, bytes(40)),
            small.save_scores(first, 0, bytes(61)),
            small.save_scores(first, 0, bytes(60)),
        ]

        assert saved == [True, False, True, False, True]
        assert checkpoint_bytes(client, run) == 100
        assert (small.saved_scores(first), small.saved_scores(second)) == ({0: bytes(60)}, {0: bytes(40)})

    def test_a_done_shard_frees_its_own(self, client: redis.Redis, run: str) -> None:
        small = Ledger(client, checkpoint_bytes=100)
        claim = claimed(small, run, A)
        small.save_scores(claim, 0, bytes(60))
        small.save_scores(claim, 8192, bytes(40))

        small.complete(claim, a_receipt(run, A))

        assert client.exists(f"shardsift:run:{run}:scores:{A.name}") == 0
        assert checkpoint_bytes(client, run) == 0
        assert small.save_scores(claimed(small, run, B), 0, bytes(100))

    def test_it_outlives_a_stop_an_error_a_crash_and_a_failure(
        self, ledger: Ledger, client: redis.Redis, run: str
    ) -> None:
        first = claimed(ledger, run)
        ledger.save_scores(first, 0, self.BYTES)
        ledger.release(first)
        found = []
        for end in (
            lambda: ledger.release(claimed(ledger, run)),
            lambda: ledger.retry_later(claimed(ledger, run), "network", ""),
            lambda: crash_by_report(ledger, client, run),
            lambda: ledger.fail(claimed(ledger, run), "corrupt", ""),
            lambda: ledger.retry(run),
        ):
            end()
            end_back_off(client, run)
            found.append(ledger.saved_scores(first))

        assert found == [{0: self.BYTES}] * 5
        assert ledger.saved_scores(claimed(ledger, run)) == {0: self.BYTES}

    def test_scores_of_no_rows_do_not_hinder_completion(self, ledger: Ledger, client: redis.Redis, run: str) -> None:
        claim = claimed(ledger, run)
        ledger.save_scores(claim, 0, b"")

        assert ledger.complete(claim, a_receipt(run, A)) == 2
        assert ledger.counts(run).rows_in == 10

    def test_a_claim_tells_that_earlier_scores_had_no_room_here(self, client: redis.Redis, run: str) -> None:
        small = Ledger(client, checkpoint_bytes=100)
        first = claimed(small, run)
        small.save_scores(first, 0, bytes(101))
        small.release(first)

        assert not first.spilled
        assert claimed(small, run).spilled
        assert not claimed(small, run, B).spilled

    def test_a_worker_saves_what_it_scored_while_its_lease_ran_out(
        self, ledger: Ledger, client: redis.Redis, run: str
    ) -> None:
        claim = claimed(ledger, run)
        end_lease(client, run)
        again(ledger, run)

        assert ledger.save_scores(claim, 0, self.BYTES)

        assert ledger.saved_scores(claimed(ledger, run, owner="w2")) == {0: self.BYTES}


class TestRestore:
    """Receipts lie beside the outputs; a Redis that lost all takes them back."""

    def test_shards_with_a_receipt_are_done(self, ledger: Ledger, run: str) -> None:
        assert ledger.restore(run, [a_receipt(run, A), a_receipt(run, C)]) == 2

        counts = ledger.counts(run)
        assert (counts.queued, counts.done, counts.shards) == (1, 2, 3)
        assert (counts.rows_in, counts.rows_kept, counts.rows_dropped, counts.rows_errored) == (20, 12, 6, 2)
        assert ledger.claim(run, A.name, "w1") is Refusal.DONE
        assert fresh(ledger, run) == [B.name]
        assert list(ledger.receipts(run)) == [a_receipt(run, A), a_receipt(run, C)]

    def test_restoring_twice_does_nothing_more(self, ledger: Ledger, run: str) -> None:
        again = [ledger.restore(run, [a_receipt(run, A)]) for _ in range(2)]

        assert again == [1, 0]
        assert ledger.counts(run).rows_in == 10

    def test_shards_that_are_held_done_failed_or_unheard_of_are_left_alone(self, ledger: Ledger, run: str) -> None:
        claim = claimed(ledger, run, A)
        ledger.complete(claimed(ledger, run, B, owner="w2"), a_receipt(run, B))
        ledger.fail(claimed(ledger, run, C, owner="w3"), "corrupt", "")
        others = a_receipt(run, B, rows_kept=5, rows_dropped=4)

        assert ledger.restore(run, [a_receipt(run, A), others, a_receipt(run, C), a_receipt(run, a_shard("x"))]) == 0

        counts = ledger.counts(run)
        assert (counts.running, counts.done, counts.failed, counts.rows_kept) == (1, 1, 1, 6)
        ledger.renew(claim, rows=1)

    def test_a_sent_shard_is_taken_too_and_its_message_finds_it_done(self, ledger: Ledger, run: str) -> None:
        fresh(ledger, run)

        assert ledger.restore(run, [a_receipt(run, A)]) == 1

        assert ledger.claim(run, A.name, "w1") is Refusal.DONE
        assert ledger.counts(run).open == 2

    def test_its_checkpoint_is_freed(self, ledger: Ledger, client: redis.Redis, run: str) -> None:
        claim = claimed(ledger, run)
        ledger.save_scores(claim, 0, b"scores")
        ledger.release(claim)

        ledger.restore(run, [a_receipt(run, A)])

        assert client.keys(f"shardsift:run:{run}:*:{A.name}") == []
        assert checkpoint_bytes(client, run) == 0

    def test_a_worker_that_recorded_the_same_receipt_hears_that_it_counts(self, ledger: Ledger, run: str) -> None:
        claim = claimed(ledger, run)
        ledger.release(claim)
        ledger.restore(run, [a_receipt(run, A)])

        assert ledger.complete(claim, a_receipt(run, A)) == 2
        assert ledger.counts(run).rows_in == 10

    def test_more_receipts_than_fit_in_one_call_are_all_taken(self, ledger: Ledger, spec: RunSpec) -> None:
        shards = [a_shard(f"{number:05}") for number in range(1_234)]
        ledger.create_run(spec, shards, now=1.0)

        assert ledger.restore(spec.run_id, (a_receipt(spec.run_id, shard) for shard in shards)) == 1_234
        assert ledger.counts(spec.run_id).open == 0


class TestCancelAndRetry:
    def test_a_cancelled_run_stops_its_workers_and_sends_nothing(self, ledger: Ledger, run: str) -> None:
        claim = claimed(ledger, run)

        ledger.cancel(run)

        assert ledger.is_cancelled(run)
        with pytest.raises(LeaseLost, match="the run was cancelled"):
            ledger.renew(claim, rows=1)
        assert ledger.claim(run, B.name, "w2") is Refusal.CANCELLED
        assert len(ledger.take_due(run, room=10)) == 0

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
        assert fresh(ledger, run) == [A.name, B.name, C.name]

    def test_failed_shards_are_queued_again_and_done_ones_left(self, ledger: Ledger, run: str) -> None:
        ledger.fail(claimed(ledger, run), "corrupt", "")
        ledger.complete(claimed(ledger, run, B), a_receipt(run, B))

        assert ledger.retry(run) == 1

        assert ledger.failures(run) == []
        assert fresh(ledger, run) == [A.name, C.name]

    def test_a_retried_shard_has_all_its_tries_again(self, ledger: Ledger, client: redis.Redis, run: str) -> None:
        for _ in range(7):
            ledger.retry_later(claimed(ledger, run), "network", "")
            end_back_off(client, run)
        for _ in range(3):
            crash_by_report(ledger, client, run)

        ledger.retry(run)

        for _ in range(7):
            ledger.retry_later(claimed(ledger, run), "network", "")
            end_back_off(client, run)
        for _ in range(2):
            crash_by_report(ledger, client, run)
        assert ledger.counts(run).failed == 0

    def test_a_retried_shard_has_forgotten_its_error(self, ledger: Ledger, client: redis.Redis, run: str) -> None:
        ledger.fail(claimed(ledger, run), "corrupt", "trace")
        ledger.retry(run)

        for _ in range(3):
            crash_by_expiry(ledger, client, run)

        (failure,) = ledger.failures(run)
        assert "vanished" in failure.error
        assert failure.traceback == ""

    def test_retrying_twice_does_nothing_more(self, ledger: Ledger, run: str) -> None:
        ledger.fail(claimed(ledger, run), "corrupt", "")

        assert [ledger.retry(run), ledger.retry(run)] == [1, 0]
        assert ledger.counts(run).queued == 3

    def test_rows_count_once_however_a_retry_of_all_and_the_workers_interleave(
        self, ledger: Ledger, spec: RunSpec
    ) -> None:
        shards = [a_shard(f"{number:03}") for number in range(500)]
        run = spec.run_id
        ledger.create_run(spec, shards, now=1.0)
        ledger.restore(run, [a_receipt(run, shard) for shard in shards])

        def score_what_is_free(owner: str) -> None:
            for shard in shards:
                claim = ledger.claim(run, shard.name, owner)
                if isinstance(claim, Claim):
                    ledger.complete(claim, a_receipt(run, shard))

        with ThreadPoolExecutor(3) as threads:
            retried = threads.submit(ledger.retry, run, done_too=True)
            list(threads.map(score_what_is_free, ("w1", "w2")))

        counts = ledger.counts(run)
        assert retried.result() == 500
        assert (counts.rows_in, counts.rows_errored) == (10 * counts.done, counts.done)
        assert counts.done + counts.queued == 500

    def test_done_shards_are_scored_again_only_where_that_is_asked(self, ledger: Ledger, run: str) -> None:
        ledger.complete(claimed(ledger, run, A), a_receipt(run, A))
        ledger.fail(claimed(ledger, run, B), "corrupt", "")
        ledger.record_publication(run, Publication(uri="x", commit="", shards=1))

        assert ledger.retry(run, done_too=True) == 2

        counts = ledger.counts(run)
        assert (counts.queued, counts.done, counts.failed, counts.rows_in) == (3, 0, 0, 0)
        assert ledger.publication(run) is None
        assert list(ledger.receipts(run)) == []
        assert ledger.complete(claimed(ledger, run, A), a_receipt(run, A)) == 2


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

    def test_new_shards_make_it_unpublished_though_their_producer_died(
        self, ledger: Ledger, spec: RunSpec, run: str
    ) -> None:
        ledger.record_publication(run, Publication(uri="x", commit="", shards=3))

        def listing_that_breaks_off() -> Iterator[Shard]:
            yield from (a_shard(f"{number:05}") for number in range(1_000))
            raise ConnectionError("the listing broke off")

        with pytest.raises(ConnectionError):
            ledger.create_run(spec, listing_that_breaks_off(), now=time.time())

        assert ledger.publication(run) is None


class TestRefusals:
    def test_what_was_refused_is_counted_over_all_runs(self, ledger: Ledger, client: redis.Redis) -> None:
        client.delete("shardsift:refused")

        for what in ("messages", "messages", "messages of other versions"):
            ledger.count_refused(what)

        assert ledger.refused() == {"messages": 2, "messages of other versions": 1}


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
