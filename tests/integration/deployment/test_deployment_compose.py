"""Compose accepts the file in a fresh clone. No port is open to the outside, and every service does what it should."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.main import get_command

from shardsift.producer.cli import cli as producer_cli
from shardsift.worker.cli import cli as worker_cli
from support.compose import (
    MONITORING,
    OURS,
    PARTS,
    PASSWORD,
    ROOT,
    SERVICES,
    compose,
)

pytestmark = pytest.mark.slow

OWN_USERS = {"redis": "999:1000", "prometheus": "65534:65534", "grafana": "472:1000"}  # of images that are not ours
CONTROL = {"init", "redis", "finalizer", "flower"}
SECRETS = yaml.safe_load((PARTS / "secrets.yml").read_text())["secrets"]
VARIABLES = sorted(secret["environment"] for secret in SECRETS.values())
REDIS_URL = "redis://10.0.0.5:6379/0"


@pytest.mark.parametrize(
    ("profiles", "others"),
    [
        ("", set()),
        ("cpu", {"worker-cpu"}),
        ("gpu", {"worker-gpu"}),
        ("tools", {"producer"}),
        ("gpu,monitoring", {"worker-gpu", *MONITORING}),
    ],
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
    answer = compose(project, "config", "--quiet", COMPOSE_FILE=_files("private-network.yml"), **environment)

    assert answer.returncode != 0
    assert "REDIS_BIND_ADDRESS" in answer.stderr


def test_no_secret_of_the_shell_shows_in_the_configuration(project: Path) -> None:
    secrets = {name: f"{PASSWORD} of {name}" for name in VARIABLES}

    answer = compose(project, "--profile", "*", "config", **secrets)

    assert answer.returncode == 0
    assert [name for name in VARIABLES if f" of {name}" in answer.stdout] == []


def test_init_alone_gets_the_secrets_and_the_others_the_files_that_they_need(
    services: dict[str, dict[str, Any]],
) -> None:
    given = {name for name, service in services.items() if "secrets" in service}
    mounts = {name: _secret_folders(service) for name, service in services.items()}

    assert given == {"init"}
    assert {secret["source"] for secret in services["init"]["secrets"]} == set(SECRETS)
    assert mounts == {
        "init": {},
        "redis": {"redis-password": "redis"},
        "flower": {"redis-password": "redis", "flower-login": "flower"},
        "prometheus": {},
        "grafana": {"grafana-password": "grafana"},
        **{
            name: {"redis-password": "redis", "tokens": "tokens"}
            for name in ("finalizer", "producer", "worker-cpu", "worker-gpu")
        },
    }


@pytest.mark.parametrize("name", SERVICES)
def test_every_container_is_locked_down(services: dict[str, dict[str, Any]], name: str) -> None:
    service = services[name]

    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    if name == "init":  # it is root, changes owners, and reaches no network
        assert service["cap_add"] == ["CHOWN", "DAC_OVERRIDE", "FOWNER"]
        assert service["network_mode"] == "none"
    else:
        assert service["read_only"] is True
        assert service["user"] == OWN_USERS.get(name, "1000:1000")


@pytest.mark.parametrize("name", OURS)
def test_a_service_waits_for_redis_and_runs_a_command_that_exists(
    services: dict[str, dict[str, Any]], name: str
) -> None:
    program, *arguments = [*(services[name]["entrypoint"] or []), *services[name]["command"]]
    group = get_command({"producer": producer_cli, "worker": worker_cli}[program])
    command = group if arguments[0].startswith("--") else group.commands[arguments[0]]

    options = {option for parameter in command.params for option in parameter.opts} | {"--help"}

    assert {argument for argument in arguments if argument.startswith("--")} <= options
    assert services[name]["depends_on"]["init"]["condition"] == "service_completed_successfully"
    assert services[name]["depends_on"]["redis"]["condition"] == "service_healthy"


def _files(part: str) -> str:
    return f"docker-compose.yml:ops/compose/{part}"


def _secret_folders(service: dict[str, Any]) -> dict[str, str]:
    """The volumes below /run/secrets. They are read-only."""
    mounts = [volume for volume in service["volumes"] if volume["target"].startswith("/run/secrets/")]
    assert all(volume["read_only"] for volume in mounts)
    return {volume["source"]: volume["target"].removeprefix("/run/secrets/") for volume in mounts}
