"""Records of publications, and counts of refusals."""

import time
from collections.abc import Iterator

import pytest
import redis

from fleet.ledger import Ledger, Publication
from fleet.run.spec import RunSpec, Shard
from support.ledger_states import (
    A,
    B,
    C,
)
from support.records import a_shard


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
