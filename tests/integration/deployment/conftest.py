"""The compose file, as Compose understands it in a user's folder."""

from pathlib import Path
from typing import Any

import pytest

from support.compose import COMPOSE, PASSWORD, services_of


@pytest.fixture(scope="session")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder as a user has it after following secrets/README.md."""
    folder = tmp_path_factory.mktemp("project")
    (folder / "docker-compose.yml").write_text(COMPOSE.read_text())
    (folder / "secrets").mkdir()
    for name in ("redis_password", "hf_token", "flower_auth"):
        (folder / "secrets" / name).write_text(f"{PASSWORD} of {name}\n")
    return folder


@pytest.fixture(scope="session")
def services(project: Path) -> dict[str, dict[str, Any]]:
    """All services of all profiles, as Compose understands them."""
    return services_of(project)
