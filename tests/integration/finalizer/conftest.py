"""A run of three shards in a folder, with a ledger and the finalizer's settings."""

from pathlib import Path

import pytest

from shardsift.fleet.ledger import Ledger
from shardsift.fleet.process.settings import Settings
from shardsift.producer.finalizer import Publisher
from support.finalizer_runs import A, B, C, FinalizerRun
from support.records import a_spec


@pytest.fixture
def settings(redis_url: str) -> Settings:
    return Settings(redis_url=redis_url, resend_seconds=60, sweep_seconds=0.05)


@pytest.fixture
def publisher(ledger: Ledger, settings: Settings) -> Publisher:
    return Publisher(ledger, settings)


@pytest.fixture
def run(ledger: Ledger, tmp_path: Path) -> FinalizerRun:
    """A run of three shards that is enqueued and not started."""
    run = FinalizerRun(ledger=ledger, spec=a_spec(output_uri=str(tmp_path / "out")))
    run.output.reserve(run.spec)
    ledger.create_run(run.spec, [A, B, C], now=1.0)
    return run
