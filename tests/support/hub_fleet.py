"""The local Hub with a fleet of clients, as fixtures that a test module or a conftest imports.

Each client is a separate process with its own token, because the Hub's client reads its environment only once. Each test
runs with LFS and with xet, and has its own repository and spec.
"""

import os
import random
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cache
from itertools import count
from multiprocessing import get_context
from pathlib import Path
from typing import Any, TypeVar

import pytest

from hubserver import HubServer
from shardsift.fleet.ledger import Ledger, Publication
from shardsift.fleet.process.settings import Settings
from shardsift.fleet.run.receipt import Receipt
from shardsift.fleet.run.spec import RunSpec, Shard
from shardsift.fleet.storage.hub import HubOutput
from shardsift.fleet.storage.open_output import open_output
from shardsift.fleet.storage.output import AcceptedFiles
from shardsift.producer.publishing.publish import NotReady, finalize_run
from support.records import a_receipt, a_spec, stage_file

T = TypeVar("T")
_numbers = count()
_random = random.Random(7)


# --- what the clients do, each in its process ------------------------------------------------------------------------


def stage(spec: RunSpec, shard: Shard, files: tuple[Path, Path], state_uri: str | None = None) -> Receipt:
    """Stage a shard and store its receipt, as a worker does."""
    output = open_output(spec.output_uri, spec.run_id, state_uri=state_uri)
    data, scores = (
        stage_file(output, path, file.read_bytes(), file.parent, attempt="1-aa")
        for file, path in zip(files, (shard.data_path, shard.scores_path), strict=True)
    )
    receipt = a_receipt(spec.run_id, shard, data=data, scores=scores)
    receipt = replace(receipt, provenance=replace(receipt.provenance, finished_at=time.time()))
    output.store_receipt(receipt)
    return receipt


def finalize(redis_url: str, run_id: str, without_failed: bool = False) -> Publication | NotReady:
    return finalize_run(Ledger.connect(Settings(redis_url=redis_url)), run_id, without_failed=without_failed)


def published(spec: RunSpec) -> str | None:
    return HubOutput(spec.output_uri, spec.run_id).published()


def reserve(spec: RunSpec) -> None:
    HubOutput(spec.output_uri, spec.run_id).reserve(spec)


def check_free(spec: RunSpec) -> None:
    HubOutput(spec.output_uri, spec.run_id).check_free(spec)


def accepted(spec: RunSpec) -> dict[str, AcceptedFiles]:
    return HubOutput(spec.output_uri, spec.run_id).accepted()


def accept(spec: RunSpec, files: AcceptedFiles) -> None:
    HubOutput(spec.output_uri, files.run_id).accept(files)


def draw_no_pictures() -> None:
    sys.modules["matplotlib.backends.backend_agg"] = None  # type: ignore[assignment]


def draw_pictures() -> None:
    del sys.modules["matplotlib.backends.backend_agg"]


def _with_token(token: str, function: Callable[..., T], *arguments: Any) -> T:
    os.environ["HF_TOKEN"] = token
    return function(*arguments)


# --- the fleet as a test holds it ------------------------------------------------------------------------------------


class Client:
    """A process of the fleet, with its own token."""

    def __init__(self, hub: HubServer, home: Path, name: str) -> None:
        self.token = hub.token(name)
        self._pool = ProcessPoolExecutor(1, mp_context=get_context("spawn"))
        environment = hub.client_env(home)
        with pytest.MonkeyPatch.context() as patch:  # the child keeps the environment with which it is started
            for variable in os.environ.keys() - environment.keys():
                patch.delenv(variable)
            for variable, value in environment.items():
                patch.setenv(variable, value)
            self._pool.submit(draw_no_pictures).result()

    def start(self, function: Callable[..., T], *arguments: Any, token: str | None = None) -> "Future[T]":
        return self._pool.submit(_with_token, token or self.token, function, *arguments)

    def call(self, function: Callable[..., T], *arguments: Any, token: str | None = None) -> T:
        return self.start(function, *arguments, token=token).result()

    def kill(self) -> None:
        (process,) = self._pool._processes.values()
        process.kill()

    def close(self) -> None:
        self._pool.shutdown()


@dataclass(frozen=True, kw_only=True)
class HubFleet:
    hub: HubServer
    worker: Client
    finalizer: Client


@pytest.fixture(scope="session")
def hub_fleets(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], HubFleet]]:
    """A hub with its clients for uploads by "lfs" or "xet". Each is started at its first use and stays for the session."""
    with ExitStack() as stack:

        def client(hub: HubServer, name: str) -> Client:
            client = Client(hub, tmp_path_factory.mktemp(f"{name}-home"), name)
            stack.callback(client.close)
            return client

        @cache
        def started(upload: str) -> HubFleet:
            hub = stack.enter_context(HubServer(xet=upload == "xet"))
            return HubFleet(hub=hub, worker=client(hub, "worker"), finalizer=client(hub, "finalizer"))

        yield started


@pytest.fixture(scope="module", params=["lfs", pytest.param("xet", marks=pytest.mark.slow)])
def running_fleet(request: pytest.FixtureRequest, hub_fleets: Callable[[str], HubFleet]) -> HubFleet:
    return hub_fleets(request.param)


@pytest.fixture(scope="module")
def running_hub(running_fleet: HubFleet) -> HubServer:
    return running_fleet.hub


@pytest.fixture(scope="module", name="running_hub")
def running_lfs_hub() -> Iterator[HubServer]:
    """A hub of the test module's own, for promises that do not depend on how bytes are uploaded."""
    with HubServer(xet=False) as hub:
        yield hub


@pytest.fixture(scope="module")
def user(running_hub: HubServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    client = Client(running_hub, tmp_path_factory.mktemp("home"), "user")
    yield client
    client.close()


@pytest.fixture
def hub(running_hub: HubServer) -> Iterator[HubServer]:
    running_hub.forget_requests()
    yield running_hub
    assert running_hub.handler_errors == []
    assert running_hub.faults_left == 0


@pytest.fixture
def worker(running_fleet: HubFleet) -> Client:
    return running_fleet.worker


@pytest.fixture
def finalizer(running_fleet: HubFleet) -> Client:
    return running_fleet.finalizer


@pytest.fixture
def repo(hub: HubServer) -> str:
    repo = f"org/out-{next(_numbers)}"
    hub.create_repo(repo)
    return repo


@pytest.fixture
def spec(repo: str) -> RunSpec:
    return a_spec(output_uri=f"hf://datasets/{repo}")


def noise(file: Path, size_bytes: int) -> Path:
    file.write_bytes(_random.randbytes(size_bytes))
    return file
