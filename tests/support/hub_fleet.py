"""The local Hub, used from the test's process. A client that a test kills is a process of its own."""

import os
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path
from typing import Any, TypeVar

import pytest
from huggingface_hub import close_session, constants

from hubserver import HubServer

T = TypeVar("T")
_FILE = constants.HUGGINGFACE_CO_URL_TEMPLATE.removeprefix(constants.ENDPOINT)


@contextmanager
def used_here(hub: HubServer, folder: Path) -> Iterator[None]:
    """Configure this process to use `hub` during the block."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(constants, "ENDPOINT", hub.endpoint)
        patch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", hub.endpoint + _FILE)
        patch.setattr(constants, "HF_HUB_OFFLINE", False)
        patch.setattr(constants, "HF_HUB_DISABLE_XET", not hub.xet)
        patch.setenv("HF_TOKEN", hub.token())
        patch.setenv("HF_XET_CACHE", str(folder / "xet"))
        close_session()
        yield
    close_session()
    assert hub.handler_errors == []
    assert hub.faults_left == 0


class User:
    """A user of the hub in this process, with a token of their own."""

    def __init__(self, hub: HubServer, name: str) -> None:
        self.token = hub.token(name)

    def start(self, function: Callable[..., T], *arguments: Any) -> "Future[T]":
        return ThreadPoolExecutor(1).submit(_with_token, self.token, function, *arguments)

    def call(self, function: Callable[..., T], *arguments: Any, token: str | None = None) -> T:
        return _with_token(token or self.token, function, *arguments)


class Client:
    """A process that uses the hub and can be killed."""

    def __init__(self, hub: HubServer, home: Path, name: str) -> None:
        self._pool = ProcessPoolExecutor(1, mp_context=get_context("spawn"))
        environment = hub.client_env(home, hub.token(name))
        with pytest.MonkeyPatch.context() as patch:  # the child keeps the environment with which it is started
            for variable in os.environ.keys() - environment.keys():
                patch.delenv(variable)
            for variable, value in environment.items():
                patch.setenv(variable, value)
            self._pool.submit(os.getpid).result()

    def start(self, function: Callable[..., T], *arguments: Any) -> "Future[T]":
        return self._pool.submit(function, *arguments)

    def kill(self) -> None:
        (process,) = self._pool._processes.values()
        process.kill()

    def close(self) -> None:
        self._pool.shutdown()


def _with_token(token: str, function: Callable[..., T], *arguments: Any) -> T:
    os.environ["HF_TOKEN"] = token
    return function(*arguments)


@pytest.fixture(scope="module", params=["lfs", pytest.param("xet", marks=pytest.mark.slow)])
def running_hub(request: pytest.FixtureRequest, hubs: Callable[[str], HubServer]) -> HubServer:
    """Yield a hub for each kind of upload, so that every test of the module or folder runs with both."""
    return hubs(request.param)
