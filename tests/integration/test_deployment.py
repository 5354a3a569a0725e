"""The deployment files, read by the tools that users run: Compose, hadolint, systemd and a shell.

There is no Docker engine in these tests. They check what the files say, not that an image builds.
"""

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import redis
from typer.main import get_command

from producer.cli import cli as producer_cli
from producer.local.redis_server import find_redis_server
from support.waiting import wait_until
from worker.cli import cli as worker_cli

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
COMPOSE = ROOT / "docker-compose.yml"
PRIVATE_NETWORK = ROOT / "ops/compose.private-network.yml"
DOCKERFILE = ROOT / "ops/images/Dockerfile"
UNIT = ROOT / "ops/systemd/shardsift-worker@.service"

PASSWORD = r"""pass"word's \ $HOME 100%"""  # characters that are special in shells, URLs and configuration files
OURS = ("finalizer", "flower", "worker", "worker-gpu")
SERVICES = ("redis", *OURS)
WORKERS = ("worker", "worker-gpu")
CLIENT = """import os, sys, redis
with redis.Redis(unix_socket_path=sys.argv[1], password=os.environ["REDISCLI_AUTH"]) as client:
    print("PONG" if client.ping() else "")
"""  # replaces valkey-cli, which the server's wheel does not contain


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder as a user has it after following secrets/README.md."""
    folder = tmp_path_factory.mktemp("project")
    (folder / "docker-compose.yml").write_text(COMPOSE.read_text())
    (folder / "secrets").mkdir()
    for name in ("redis_password", "hf_token", "flower_auth"):
        (folder / "secrets" / name).write_text(f"{PASSWORD} of {name}\n")
    return folder


@pytest.fixture(scope="module")
def services(project: Path) -> dict[str, dict[str, Any]]:
    """All services of all profiles, as Compose understands them."""
    return services_of(project)


def compose(project: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the real Compose, with only the given environment."""
    return subprocess.run(
        [BIN / "docker-compose", "--project-directory", project, "--env-file", os.devnull, *arguments],
        cwd=project,
        env={"PATH": os.defpath, "HOME": str(project), **environment},
        capture_output=True,
        text=True,
        timeout=30,
    )


def services_of(project: Path, *arguments: str, **environment: str) -> dict[str, dict[str, Any]]:
    answer = compose(project, "--profile", "*", *arguments, "config", "--format", "json", **environment)
    assert answer.returncode == 0, answer.stderr
    return json.loads(answer.stdout)["services"]


# ---- Compose reads the files ---------------------------------------------------------------------------------------


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


# ---- Nobody outside gets in ----------------------------------------------------------------------------------------


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
    assert _seconds(service["stop_grace_period"]) >= 20  # twice the longest time that a worker needs


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


def _seconds(duration: str) -> int:
    minutes, seconds = re.fullmatch(r"(?:(\d+)m)?(?:(\d+)s)?", duration).groups(default="0")  # type: ignore[union-attr]
    return int(minutes) * 60 + int(seconds)


# ---- Redis as the compose file starts it, with the embedded server in place of the image's --------------------------


@pytest.fixture
def fleet_redis(services: dict[str, dict[str, Any]], tmp_path: Path) -> Iterator[tuple[psutil.Process, Path]]:
    """The server, started by the compose file's own shell lines, and its unix socket."""
    (tmp_path / "redis_password").write_text(PASSWORD + "\n")
    server = subprocess.Popen(_redis_command(services, tmp_path), cwd=tmp_path, stdout=subprocess.DEVNULL)
    socket = tmp_path / "redis.sock"
    try:
        wait_until(socket.exists, description="Redis to open its socket")
        yield psutil.Process(server.pid), socket
    finally:
        server.send_signal(signal.SIGKILL)
        server.wait(10)


def test_redis_accepts_only_clients_with_the_password(fleet_redis: tuple[psutil.Process, Path]) -> None:
    _, socket = fleet_redis

    with redis.Redis(unix_socket_path=str(socket), password=PASSWORD) as client:
        settings = client.config_get()
    with redis.Redis(unix_socket_path=str(socket)) as stranger, pytest.raises(redis.AuthenticationError):
        stranger.ping()

    assert settings["appendonly"] == "yes"
    assert settings["appendfsync"] == "everysec"
    assert settings["maxmemory-policy"] == "noeviction"


def test_the_server_gets_no_password_by_argument_environment_or_file(
    services: dict[str, dict[str, Any]], tmp_path: Path
) -> None:
    (tmp_path / "redis_password").write_text(PASSWORD + "\n")
    stand_in = tmp_path / "valkey-server"
    stand_in.write_text('#!/bin/sh\necho "$@"; env; cat "$2"\n')
    stand_in.chmod(0o755)
    shell, flags, script = services["redis"]["command"]

    shown = subprocess.run(
        [shell, flags, _in_folder(script, tmp_path)],
        env={"PATH": f"{tmp_path}:{os.defpath}"},
        capture_output=True,
        text=True,
        timeout=10,
        check=True,
    ).stdout

    assert "--aclfile" in shown
    assert "user default on #" in shown
    assert PASSWORD not in shown


def test_the_health_check_of_redis_knows_a_running_from_a_missing_server(
    services: dict[str, dict[str, Any]], fleet_redis: tuple[psutil.Process, Path], tmp_path: Path
) -> None:
    process, socket = fleet_redis
    check = _in_folder(services["redis"]["healthcheck"]["test"][1], tmp_path)
    check = check.replace("valkey-cli", shlex.join([sys.executable, "-c", CLIENT, str(socket)]))

    running = subprocess.run(["sh", "-c", check], capture_output=True, timeout=10).returncode
    process.kill()
    wait_until(lambda: process.status() == psutil.STATUS_ZOMBIE, description="Redis to be gone")
    missing = subprocess.run(["sh", "-c", check], capture_output=True, timeout=10).returncode

    assert (running, missing) == (0, 1)


def test_redis_does_not_start_with_an_empty_password(services: dict[str, dict[str, Any]], tmp_path: Path) -> None:
    (tmp_path / "redis_password").write_text("\n")

    answer = subprocess.run(
        _redis_command(services, tmp_path), cwd=tmp_path, capture_output=True, text=True, timeout=10
    )

    assert answer.returncode == 1
    assert "secrets/README.md" in answer.stderr


def _redis_command(services: dict[str, dict[str, Any]], folder: Path) -> list[str]:
    shell, flags, script = services["redis"]["command"]
    here = shlex.join([find_redis_server(), "--port", "0", "--unixsocket", str(folder / "redis.sock")])
    return [shell, flags, _in_folder(script, folder).replace("valkey-server", here)]


def _in_folder(script: str, folder: Path) -> str:
    """The container's script, undoubling Compose's `$$`, with its paths moved to a folder of the test."""
    return (
        script.replace("$$", "$")
        .replace("/run/secrets/", f"{folder}/")
        .replace("/tmp/users.acl", f"{folder}/users.acl")
    )


# ---- Images --------------------------------------------------------------------------------------------------------


def test_hadolint_has_no_complaint_about_the_dockerfile() -> None:
    answer = subprocess.run([BIN / "hadolint", DOCKERFILE], capture_output=True, text=True, timeout=30)

    assert (answer.returncode, answer.stdout) == (0, "")


def test_the_dockerfile_copies_only_what_the_repository_has_and_docker_is_shown() -> None:
    shown = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}

    copied = {
        source
        for line in DOCKERFILE.read_text().splitlines()
        if line.startswith("COPY ")
        for source in line.split()[1:-1]
        if not source.startswith("--")
    }

    assert copied == shown
    assert {source for source in copied if not (ROOT / source).exists()} == set()
    assert copied >= {"fleet", "producer", "worker"}


def test_every_image_that_compose_builds_is_a_target_of_the_dockerfile(services: dict[str, dict[str, Any]]) -> None:
    targets = set(re.findall(r"^FROM \S+ AS (\S+)$", DOCKERFILE.read_text(), re.MULTILINE))

    assert {services[name]["build"]["target"] for name in OURS} == {"light", "cpu", "gpu"}
    assert targets >= {"light", "cpu", "gpu"}


def test_the_light_image_installs_no_torch() -> None:
    parent_of = {
        stage: parent for parent, stage in re.findall(r"^FROM (\S+) AS (\S+)$", DOCKERFILE.read_text(), re.MULTILINE)
    }
    light_set = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]

    lineage = ["light"]
    while lineage[-1] in parent_of:
        lineage.append(parent_of[lineage[-1]])

    assert lineage[:3] == ["light", "light-packages", "base"]
    assert "torch" not in " ".join(light_set)


def test_every_folder_that_a_volume_covers_exists_in_the_image(services: dict[str, dict[str, Any]]) -> None:
    made = set(re.search(r"mkdir -m 1777 (.+)", DOCKERFILE.read_text())[1].split())  # type: ignore[index]

    covered = {volume["target"] for name in OURS for volume in services[name]["volumes"] if volume["type"] == "volume"}

    assert covered == made


# ---- systemd -------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd here")
def test_systemd_understands_the_unit(tmp_path: Path) -> None:
    good, bad = tmp_path / "good@.service", tmp_path / "bad@.service"
    good.write_text(UNIT.read_text())
    bad.write_text(UNIT.read_text().replace("KillMode=", "KilMode="))

    assert _complaints(good) == []
    assert "KilMode" in " ".join(_complaints(bad))


def _complaints(unit: Path) -> list[str]:
    """The messages of systemd about a unit, except those about programs that only GPU machines have."""
    answer = subprocess.run(["systemd-analyze", "verify", unit], capture_output=True, text=True, timeout=30)
    return [line for line in answer.stderr.splitlines() if "is not executable: No such file" not in line]


def test_the_unit_finds_what_was_tuned_and_may_write_an_output_folder() -> None:
    lines = UNIT.read_text().splitlines()
    guide = (ROOT / "ops/README.md").read_text()

    assert {"ProtectSystem=strict", "ProtectHome=yes", "ReadWritePaths=-/srv/shardsift"} <= set(lines)
    assert "StateDirectory=shardsift" in lines  # /var/lib/shardsift, which systemd creates for the user
    assert "Environment=SHARDSIFT_STATE_DIR=/var/lib/shardsift" in lines
    assert "-p StateDirectory=shardsift" in guide
    assert "-E SHARDSIFT_STATE_DIR=/var/lib/shardsift" in guide


def test_the_unit_stops_a_worker_as_compose_does_and_leaves_it_the_gpu(services: dict[str, dict[str, Any]]) -> None:
    lines = UNIT.read_text().splitlines()
    settings = dict(line.split("=", 1) for line in lines if "=" in line and not line.startswith("#"))

    assert settings["KillMode"] == "mixed"
    assert int(settings["TimeoutStopSec"]) == _seconds(services["worker"]["stop_grace_period"])
    assert "Environment=CUDA_VISIBLE_DEVICES=%i CUDA_DEVICE_ORDER=PCI_BUS_ID" in lines
    assert settings["ExecStart"].endswith("/bin/worker start --name gpu%i")
    assert not {"PrivateDevices", "ProtectClock", "DevicePolicy", "DeviceAllow"} & set(settings)
