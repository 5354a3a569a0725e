"""The local Hub with a fleet of clients, as fixtures that a test module imports.

Each client is a separate process with its own token, because the Hub's client reads its environment only once. Each test
runs with LFS and with xet, and has its own repository and spec.
"""

import hashlib
import os
import random
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import replace
from itertools import count
from multiprocessing import get_context
from pathlib import Path
from typing import Any, TypeVar

import pytest

from fleet.ledger import Ledger, Publication
from fleet.receipt import OutputFile, Receipt
from fleet.settings import Settings
from fleet.shard import Shard
from fleet.spec import RunSpec
from fleet.storage.hub import HubOutput
from fleet.storage.output import Mark
from hubserver import HubServer
from producer.finalizer.publish import NotReady, finalize_run
from support.records import a_receipt, a_spec

T = TypeVar("T")
_numbers = count()
_random = random.Random(7)


# --- what the clients do, each in its process ------------------------------------------------------------------------


def stage(spec: RunSpec, shard: Shard, files: tuple[Path, Path]) -> Receipt:
    """Stage a shard and store its receipt, as a worker does."""
    output = HubOutput(spec.output_uri, spec.run_id)
    data, scores = (
        OutputFile(
            path=path,
            staged_path=output.stage(file, path, attempt="1-aa"),
            size_bytes=file.stat().st_size,
            sha256=hashlib.sha256(file.read_bytes()).hexdigest(),
            rows=1,
        )
        for file, path in zip(files, (shard.data_path, shard.scores_path), strict=True)
    )
    receipt = a_receipt(spec.run_id, shard, data=data, scores=scores)
    receipt = replace(receipt, provenance=replace(receipt.provenance, finished_at=time.time()))
    output.store_receipt(receipt)
    return receipt


def finalize(redis_url: str, run_id: str, without_failed: bool = False) -> Publication | NotReady:
    return finalize_run(Ledger.connect(Settings(redis_url=redis_url)), run_id, without_failed=without_failed)


def published(spec: RunSpec) -> Mark | None:
    return HubOutput(spec.output_uri, spec.run_id).published()


def _with_token(token: str, function: Callable[..., T], *arguments: Any) -> T:
    os.environ["HF_TOKEN"] = token
    return function(*arguments)


# --- the fleet as a test holds it ------------------------------------------------------------------------------------


class Client:
    """A process of the fleet, with its own token."""

    def __init__(self, hub: HubServer, home: Path, name: str) -> None:
        self.token = hub.token(name)
        self._pool = ProcessPoolExecutor(1, mp_context=get_context("spawn"))
        with pytest.MonkeyPatch.context() as patch:  # the child keeps the environment with which it is started
            for variable in list(os.environ):
                patch.delenv(variable)
            for variable, value in hub.client_env(home).items():
                patch.setenv(variable, value)
            self._pool.submit(os.getpid).result()

    def start(self, function: Callable[..., T], *arguments: Any, token: str | None = None) -> "Future[T]":
        return self._pool.submit(_with_token, token or self.token, function, *arguments)

    def call(self, function: Callable[..., T], *arguments: Any, token: str | None = None) -> T:
        return self.start(function, *arguments, token=token).result()

    def kill(self) -> None:
        (process,) = self._pool._processes.values()
        process.kill()

    def close(self) -> None:
        self._pool.shutdown()


@pytest.fixture(scope="module", params=["lfs", "xet"])
def running_hub(request: pytest.FixtureRequest) -> Iterator[HubServer]:
    with HubServer(xet=request.param == "xet") as hub:
        yield hub


@pytest.fixture
def hub(running_hub: HubServer) -> Iterator[HubServer]:
    running_hub.forget_requests()
    yield running_hub
    assert running_hub.handler_errors == []
    assert running_hub.faults_left == 0


@pytest.fixture(scope="module")
def worker(running_hub: HubServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    client = Client(running_hub, tmp_path_factory.mktemp("worker-home"), "worker")
    yield client
    client.close()


@pytest.fixture(scope="module")
def finalizer(running_hub: HubServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    client = Client(running_hub, tmp_path_factory.mktemp("finalizer-home"), "finalizer")
    yield client
    client.close()


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


def titles(hub: HubServer, repo: str) -> list[str]:
    return [commit.title for commit in hub.commits(repo)]


def outputs(hub: HubServer, repo: str) -> set[str]:
    return hub.files(repo).keys() - {".gitattributes"}
