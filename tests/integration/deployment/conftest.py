"""The compose file, as Compose understands it in a user's folder."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from support.compose import COMPOSE, PARTS, services_of


@pytest.fixture(scope="session")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder as a user has it after a clone."""
    folder = tmp_path_factory.mktemp("project")
    shutil.copy(COMPOSE, folder)
    shutil.copytree(PARTS, folder / "ops/compose")
    return folder


@pytest.fixture(scope="session")
def services(project: Path) -> dict[str, dict[str, Any]]:
    """All services of all profiles, as Compose understands them."""
    return services_of(project)
