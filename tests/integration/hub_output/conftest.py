"""A run on a local Hub: new, staged, or with some of its shards scored."""

from itertools import count
from pathlib import Path

import pytest

from hubserver import HubServer
from shardsift.fleet.ledger import Ledger
from shardsift.fleet.run.spec import RunSpec
from support import hub_fleet
from support.hub_runs import SHARDS, A, B, HubRun
from support.records import a_shard, a_spec

LARGE_SHARD_BYTES = 300_000
LARGE_SHARDS = [a_shard("CC-MAIN-2024-10/000_00000"), a_shard("CC-MAIN-2024-10/000_00001")]

running_hub = hub_fleet.running_hub
_numbers = count()


@pytest.fixture
def repo(hub: HubServer) -> str:
    repo = f"org/run-{next(_numbers)}"
    hub.create_repo(repo)
    return repo


@pytest.fixture
def spec(repo: str) -> RunSpec:
    return a_spec(output_uri=f"hf://datasets/{repo}")


@pytest.fixture
def run(hub: HubServer, repo: str, spec: RunSpec, redis_url: str, ledger: Ledger, tmp_path: Path) -> HubRun:
    """A new run, which is not enqueued."""
    return HubRun(hub=hub, repo=repo, spec=spec, redis_url=redis_url, ledger=ledger, folder=tmp_path)


@pytest.fixture
def staged(run: HubRun) -> dict[str, bytes]:
    """Enqueue the run with two large shards and finish both. Returns the content of their files."""
    run.ledger.create_run(run.spec, LARGE_SHARDS, now=1.0)
    return run.score(*LARGE_SHARDS, data_bytes=LARGE_SHARD_BYTES)


@pytest.fixture
def enqueued(run: HubRun) -> None:
    """Enqueue the run with four small shards."""
    run.ledger.create_run(run.spec, SHARDS, now=1.0)


@pytest.fixture
def half(run: HubRun, enqueued: None) -> HubRun:
    """The run, of which two of four shards are done."""
    run.score(A, B)
    return run
