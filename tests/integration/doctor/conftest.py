"""A machine whose Redis and Hub a test can put wrong."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from huggingface_hub import close_session, constants

from hubserver import HubServer
from shardsift.fleet.process.settings import Settings


@pytest.fixture(scope="session")
def redis_url(shared_redis_url: str) -> str:
    return shared_redis_url


@pytest.fixture
def settings(redis_url: str, tmp_path: Path) -> Settings:
    return Settings(redis_url=redis_url, state_dir=tmp_path / "state", scratch_dir=tmp_path / "scratch")


@pytest.fixture(scope="session")
def running_hub() -> Iterator[HubServer]:
    with HubServer(xet=True) as hub:
        hub.create_repo("ada/kept")
        yield hub
    assert hub.handler_errors == []


@pytest.fixture
def hub(running_hub: HubServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[HubServer]:
    """The Hub that this process uses, without a token."""
    monkeypatch.setattr(constants, "ENDPOINT", running_hub.endpoint)
    files = running_hub.endpoint + "/{repo_id}/resolve/{revision}/{filename}"
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", files)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "no-token"))
    monkeypatch.delenv("HF_TOKEN", raising=False)
    close_session()
    yield running_hub
    close_session()


@pytest.fixture
def use_token(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    return lambda token: monkeypatch.setenv("HF_TOKEN", token)


@pytest.fixture
def no_hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:1")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    close_session()
    yield
    close_session()
