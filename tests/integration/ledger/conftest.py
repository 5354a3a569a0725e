"""A ledger on a real server, which the tests share, and a run of three shards for each test."""

import time
from itertools import count

import pytest

from shardsift.fleet.ledger import Ledger
from shardsift.fleet.run.spec import RunSpec
from support.ledger_states import A, B, C
from support.records import a_spec

_numbers = count()


@pytest.fixture
def spec() -> RunSpec:
    return a_spec(input_revision=f"revision-{next(_numbers)}")


@pytest.fixture
def run(ledger: Ledger, spec: RunSpec) -> str:
    """A run of three shards."""
    ledger.create_run(spec, [A, B, C], now=time.time())
    return spec.run_id
