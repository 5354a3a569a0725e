"""On a local Hub: a run whose shards are all staged, and a run of four small shards that is not started."""

from pathlib import Path

import pytest

from fleet.ledger import Claim, Ledger
from fleet.spec import RunSpec
from hubserver import HubServer
from support import hub_fleet
from support.hub_fleet import Client, noise, stage
from support.hub_runs import SHARDS, A, B, HubRun
from support.records import a_shard

SHARD_BYTES = 300_000
LARGE_SHARDS = [a_shard("CC-MAIN-2024-10/000_00000"), a_shard("CC-MAIN-2024-10/000_00001")]

# The hubs and their clients, which all files of this folder share.
hub_fleets, running_fleet, running_hub = hub_fleet.hub_fleets, hub_fleet.running_fleet, hub_fleet.running_hub
hub, worker, finalizer = hub_fleet.hub, hub_fleet.worker, hub_fleet.finalizer
repo, spec = hub_fleet.repo, hub_fleet.spec


@pytest.fixture(scope="session")
def redis_url(shared_redis_url: str) -> str:
    return shared_redis_url


@pytest.fixture
def staged(worker: Client, ledger: Ledger, spec: RunSpec, tmp_path: Path) -> dict[str, bytes]:
    """A run whose shards are all done and staged, and path → content of its files."""
    content = {}
    ledger.create_run(spec, LARGE_SHARDS, now=1.0)
    for shard in LARGE_SHARDS:
        files = (noise(tmp_path / "data", SHARD_BYTES), noise(tmp_path / "scores", SHARD_BYTES // 3))
        content |= {shard.data_path: files[0].read_bytes(), shard.scores_path: files[1].read_bytes()}
        claim = ledger.claim(spec.run_id, shard.name, "w1")
        assert isinstance(claim, Claim)
        ledger.complete(claim, worker.call(stage, spec, shard, files))
    return content


@pytest.fixture
def run(
    hub: HubServer,
    repo: str,
    spec: RunSpec,
    worker: Client,
    finalizer: Client,
    redis_url: str,
    ledger: Ledger,
    tmp_path: Path,
) -> HubRun:
    """A run that is enqueued and not started."""
    ledger.create_run(spec, SHARDS, now=1.0)
    return HubRun(
        hub=hub,
        repo=repo,
        spec=spec,
        worker=worker,
        finalizer=finalizer,
        redis_url=redis_url,
        ledger=ledger,
        folder=tmp_path,
    )


@pytest.fixture
def scored(run: HubRun) -> dict[str, bytes]:
    """Finish two of four shards. Returns the content of their files."""
    return run.score(A, B)
