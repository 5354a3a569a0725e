"""Only one worker at a time holds a shard, even if an answer of Redis is lost."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from fleet.errors import LeaseLost
from fleet.ledger import Claim, Ledger, Refusal
from fleet.process.settings import Settings
from fleet.run.spec import RunSpec
from support.ledger_states import A, B, claimed
from support.records import a_receipt, a_shard


class TestClaims:
    def test_of_many_threads_one_claims_each_shard(self, redis_url: str, spec: RunSpec) -> None:
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

    @pytest.mark.parametrize(("run_id", "name"), [("nope", "a"), (None, "nope")])
    def test_a_message_that_outlived_its_run_is_refused(
        self, ledger: Ledger, run: str, run_id: str | None, name: str
    ) -> None:
        assert ledger.claim(run_id or run, name, "w1") is Refusal.UNKNOWN


class LossyConnection(redis.UnixDomainSocketConnection):
    """Loses a given number of answers, after Redis has executed the commands."""

    answers_to_lose = 0

    def read_response(self, *args: object, **kwargs: object) -> object:
        answer = super().read_response(*args, **kwargs)
        if LossyConnection.answers_to_lose:
            LossyConnection.answers_to_lose -= 1
            raise redis.ConnectionError("The answer was lost.")
        return answer


class TestLostAnswers:
    """The client repeats a call without knowing that the first call was executed."""

    @pytest.fixture
    def lossy(self, redis_url: str, run: str) -> Iterator[Ledger]:
        """A ledger on a lossy connection. `run` is written and the scripts are loaded before answers are lost."""
        retry = Retry(NoBackoff(), 1)
        with redis.Redis.from_url(
            redis_url, decode_responses=True, connection_class=LossyConnection, retry=retry
        ) as client:
            lossy = Ledger(client, Settings())
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

    def test_an_error_reported_twice_is_one_error(
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
    """Open the connection and load the scripts, which the first calls do."""
    stale = claimed(ledger, run_id, B, owner="warm-up")
    ledger.retry_later(stale, "", "")
    with pytest.raises(LeaseLost):
        ledger.complete(stale, a_receipt(run_id, B))
