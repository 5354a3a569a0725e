"""The machine of a user who has neither a fleet nor the Hub."""

from pathlib import Path

import pytest


@pytest.fixture
def machine(tmp_path: Path) -> dict[str, str]:
    """The environment of a machine without REDIS_URL and the Hub, with its own state folder."""
    return {
        "SHARDSIFT_STATE_DIR": str(tmp_path / "state"),
        "SHARDSIFT_PARITY_ROWS": "0",  # saves seconds per start; the gate has its own tests
        "HF_HUB_OFFLINE": "1",
        "REDIS_URL": "",
    }


@pytest.fixture
def on_machine(machine: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Put this process on that machine."""
    for name, value in machine.items():
        monkeypatch.setenv(name, value)
