"""Compose accepts the file. No port is open to the outside, and every service does what it should."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from producer.cli import cli as producer_cli
from support.compose import (
    COMPOSE,
    OURS,
    PASSWORD,
    PRIVATE_NETWORK,
    SERVICES,
    WORKERS,
    compose,
    seconds_of,
    services_of,
)
from worker.cli import cli as worker_cli


@pytest.mark.parametrize("profile", [[], ["--profile", "gpu"]], ids=["default", "gpu"])
def test_compose_accepts_the_file_in_every_profile(project: Path, profile: list[str]) -> None:
    answer = compose(project, *profile, "config", "--quiet")

    assert (answer.returncode, answer.stderr) == (0, "")


def test_a_misspelt_key_is_refused(project: Path, tmp_path: Path) -> None:
    misspelt = tmp_path / "docker-compose.yml"
    misspelt.write_text(COMPOSE.read_text().replace("stop_grace_period", "stop_grace_perod"))

    answer = compose(project, "-f", str(misspelt), "config", "--quiet")

    assert answer.returncode != 0
    assert "stop_grace_perod" in answer.stderr


def test_only_the_gpu_worker_needs_a_profile(project: Path) -> None:
    answer = compose(project, "config", "--services")

    assert sorted(answer.stdout.split()) == ["finalizer", "flower", "redis", "worker"]


# ---- Nothing is open to the outside --------------------------------------------------------------------------------


def test_only_flower_has_a_port_and_only_on_this_machine(services: dict[str, dict[str, Any]]) -> None:
    published = {
        name: [port["host_ip"] for port in service["ports"]] for name, service in services.items() if "ports" in service
    }

    assert published == {"flower": ["127.0.0.1"]}


def test_redis_is_published_on_the_address_that_was_named(project: Path) -> None:
    files = ("-f", str(COMPOSE), "-f", str(PRIVATE_NETWORK))

    ports = services_of(project, *files, REDIS_BIND_ADDRESS="10.0.0.5")["redis"]["ports"]

    assert [(port["host_ip"], port["published"]) for port in ports] == [("10.0.0.5", "6379")]


@pytest.mark.parametrize("environment", [{}, {"REDIS_BIND_ADDRESS": ""}], ids=["unset", "empty"])
def test_redis_is_not_published_without_an_address(project: Path, environment: dict[str, str]) -> None:
    files = ("-f", str(COMPOSE), "-f", str(PRIVATE_NETWORK))

    answer = compose(project, *files, "config", "--quiet", **environment)

    assert answer.returncode != 0
    assert "REDIS_BIND_ADDRESS" in answer.stderr


def test_no_secret_shows_in_what_docker_inspect_prints(services: dict[str, dict[str, Any]]) -> None:
    assert PASSWORD not in str(services)
    assert json.dumps(PASSWORD)[1:-1] not in json.dumps(services)
    for service in services.values():
        for name, value in service.get("environment", {}).items():
            if re.search("PASSWORD|TOKEN_PATH|AUTH", name):
                assert value.startswith("/run/secrets/"), name


def test_flower_cannot_read_the_hub_token(services: dict[str, dict[str, Any]]) -> None:
    assert {secret["source"] for secret in services["flower"]["secrets"]} == {"redis_password", "flower_auth"}


@pytest.mark.parametrize("name", SERVICES)
def test_every_container_is_locked_down_and_comes_back(services: dict[str, dict[str, Any]], name: str) -> None:
    service = services[name]

    assert service["restart"] == "unless-stopped"
    assert service["healthcheck"]["test"]
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service["read_only"] is True
    assert service["user"] == "1000:1000"


# ---- Services do what they should ----------------------------------------------------------------------------------


def test_every_service_is_there(services: dict[str, dict[str, Any]]) -> None:
    assert set(services) == set(SERVICES)


@pytest.mark.parametrize("name", OURS)
def test_a_service_waits_for_redis_and_runs_a_command_that_exists(
    services: dict[str, dict[str, Any]], name: str
) -> None:
    program, subcommand, *arguments = services[name]["command"]
    commands = get_command({"producer": producer_cli, "worker": worker_cli}[program]).commands

    options = {option for parameter in commands[subcommand].params for option in parameter.opts}

    assert {argument for argument in arguments if argument.startswith("--")} <= options
    assert services[name]["depends_on"]["redis"]["condition"] == "service_healthy"


@pytest.mark.parametrize("name", WORKERS)
def test_a_worker_is_asked_to_stop_and_given_the_time_for_it(services: dict[str, dict[str, Any]], name: str) -> None:
    service = services[name]

    assert service["stop_signal"] == "SIGTERM"
    assert service["init"] is True
    assert seconds_of(service["stop_grace_period"]) >= 20  # twice the longest time that a worker needs


@pytest.mark.parametrize(("environment", "device"), [({}, "0"), ({"GPU_ID": "3"}, "3")])
def test_a_gpu_worker_owns_one_gpu(project: Path, environment: dict[str, str], device: str) -> None:
    services = services_of(project, **environment)

    assert _gpus(services) == {"worker-gpu": [device]}


def test_the_second_gpu_is_four_lines_away(project: Path, tmp_path: Path) -> None:
    block = re.search(r"^  # worker-gpu-1:\n(?:  #   .*\n)+", COMPOSE.read_text(), re.MULTILINE)
    assert block is not None
    uncommented = tmp_path / "docker-compose.yml"
    uncommented.write_text(COMPOSE.read_text().replace(block[0], block[0].replace("  # ", "  ")))

    services = services_of(project, "-f", str(uncommented))

    assert _gpus(services) == {"worker-gpu": ["0"], "worker-gpu-1": ["1"]}
    assert services["worker-gpu-1"]["command"] == services["worker-gpu"]["command"]


def _gpus(services: dict[str, dict[str, Any]]) -> dict[str, list[str]]:
    """The device ids that each service reserves."""
    return {
        name: [device_id for device in devices for device_id in device["device_ids"]]
        for name, service in services.items()
        if (devices := service.get("deploy", {}).get("resources", {}).get("reservations", {}).get("devices"))
    }
