"""A machine whose Redis and Hub a test can put wrong."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from huggingface_hub import close_session, constants

from hubserver import HubServer
from shardsift.fleet.process.settings import Settings
from support.hub_fleet import used_here


@pytest.fixture
def settings(redis_url: str, tmp_path: Path) -> Settings:
    return Settings(redis_url=redis_url, state_dir=tmp_path / "state", scratch_dir=tmp_path / "scratch")


@pytest.fixture(scope="session")
def running_hub(hubs: Callable[[str], HubServer]) -> HubServer:
    hubs("xet").create_repo("ada/kept")
    return hubs("xet")


@pytest.fixture
def hub(running_hub: HubServer, tmp_path: Path) -> Iterator[HubServer]:
    """The Hub that this process uses, without a token."""
    with used_here(running_hub, tmp_path), pytest.MonkeyPatch.context() as patch:
        patch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "no-token"))
        patch.delenv("HF_TOKEN")
        yield running_hub


@pytest.fixture
def no_hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:1")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    close_session()
    yield
    close_session()
