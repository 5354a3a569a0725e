"""Compose accepts the file in a fresh clone. No port is open to the outside, and no container can do more than it must.

Which secret each container sees is left to `make test-containers`.
"""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from support.compose import MONITORING, PARTS, PASSWORD, ROOT, SERVICES, compose

pytestmark = pytest.mark.slow

OWN_USERS = {"redis": "999:1000", "prometheus": "65534:65534", "grafana": "472:1000"}  # of images that are not ours
CONTROL = {"init", "redis", "finalizer", "flower"}
SECRETS = yaml.safe_load((PARTS / "secrets.yml").read_text())["secrets"]


@pytest.mark.parametrize(
    ("profiles", "others"),
    [("", set()), ("tools", {"producer"}), ("gpu,monitoring", {"worker-gpu", *MONITORING})],
)
def test_a_fresh_clone_starts_these_services(project: Path, profiles: str, others: set[str]) -> None:
    answer = compose(project, "config", "--services", COMPOSE_PROFILES=profiles)

    assert (answer.returncode, answer.stderr) == (0, "")
    assert set(answer.stdout.split()) == CONTROL | others


@pytest.mark.parametrize("role", [0, 1, 2], ids=["workers here", "has Redis", "joins"])
def test_each_part_of_env_example_is_accepted(project: Path, role: int) -> None:
    parts = (ROOT / ".env.example").read_text().split("\n# ---- ")
    variables = dict(re.findall(r"^#([A-Z_]+)=(.+)$", parts[role], re.MULTILINE))

    answer = compose(project, "config", "--services", **variables)

    assert (answer.returncode, answer.stderr) == (0, "")
    assert ("redis" in answer.stdout) == ("REDIS_URL" not in variables)


def test_only_pages_for_people_have_a_port_and_only_on_this_machine(services: dict[str, dict[str, Any]]) -> None:
    published = {
        name: [port["host_ip"] for port in service["ports"]] for name, service in services.items() if "ports" in service
    }

    assert published == {name: ["127.0.0.1"] for name in ("flower", *MONITORING)}


@pytest.mark.parametrize("environment", [{}, {"REDIS_BIND_ADDRESS": ""}], ids=["unset", "empty"])
def test_redis_is_not_published_without_an_address(project: Path, environment: dict[str, str]) -> None:
    files = "docker-compose.yml:ops/compose/private-network.yml"

    answer = compose(project, "config", "--quiet", COMPOSE_FILE=files, **environment)

    assert answer.returncode != 0
    assert "REDIS_BIND_ADDRESS" in answer.stderr


def test_no_secret_of_the_shell_shows_in_the_configuration(project: Path) -> None:
    secrets = {secret["environment"]: f"{PASSWORD} of {name}" for name, secret in SECRETS.items()}

    answer = compose(project, "--profile", "*", "config", **secrets)

    assert answer.returncode == 0
    assert [name for name in SECRETS if f" of {name}" in answer.stdout] == []


@pytest.mark.parametrize("name", SERVICES)
def test_every_container_is_locked_down(services: dict[str, dict[str, Any]], name: str) -> None:
    service = services[name]

    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    if name == "init":  # it is root, changes owners, and reaches no network
        assert service["cap_add"] == ["CHOWN", "DAC_OVERRIDE", "FOWNER"]
        assert service["network_mode"] == "none"
    else:
        assert "secrets" not in service  # the others get files, in volumes
        assert service["read_only"] is True
        assert service["user"] == OWN_USERS.get(name, "1000:1000")
