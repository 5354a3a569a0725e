"""A ledger on a real server, which the tests share, and a run of three shards for each test."""

import time
from collections.abc import Iterator
from itertools import count

import pytest
import redis

from shardsift.fleet.ledger import Ledger
from shardsift.fleet.process.settings import Settings
from shardsift.fleet.run.spec import RunSpec
from support.ledger_states import A, B, C
from support.records import a_spec

_numbers = count()


@pytest.fixture
def client(redis_url: str) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(redis_url, decode_responses=True) as client:
        yield client


@pytest.fixture
def ledger(client: redis.Redis) -> Ledger:
    return Ledger(client, Settings())


@pytest.fixture
def spec() -> RunSpec:
    return a_spec(input_revision=f"revision-{next(_numbers)}")


@pytest.fixture
def run(ledger: Ledger, spec: RunSpec) -> str:
    """A run of three shards."""
    ledger.create_run(spec, [A, B, C], now=time.time())
    return spec.run_id
