"""The Dockerfile and the systemd unit agree with the compose file and the repository."""

import re
import subprocess
import tomllib
from typing import Any

from containers.walk import readme_lines
from support.compose import BIN, DOCKERFILE, OURS, ROOT, UNIT, seconds_of
from support.pages import blocks_of


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


def test_a_build_pulls_no_frontend() -> None:
    assert "# syntax=" not in DOCKERFILE.read_text()


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

    covered = {
        volume["target"]
        for name in OURS
        for volume in services[name]["volumes"]
        if volume["type"] == "volume" and not volume.get("read_only")
    }

    assert covered == made


# ---- systemd -------------------------------------------------------------------------------------------------------


def test_the_unit_finds_what_was_tuned_and_may_write_an_output_folder() -> None:
    lines = UNIT.read_text().splitlines()
    guide = (UNIT.parent / "README.md").read_text()

    assert {"ProtectSystem=strict", "ProtectHome=yes", "ReadWritePaths=-/srv/shardsift"} <= set(lines)
    assert "StateDirectory=shardsift" in lines  # /var/lib/shardsift, which systemd creates for the user
    assert "Environment=SHARDSIFT_STATE_DIR=/var/lib/shardsift" in lines
    assert "-p StateDirectory=shardsift" in guide
    assert "-E SHARDSIFT_STATE_DIR=/var/lib/shardsift" in guide


def test_the_unit_stops_a_worker_as_compose_does_and_leaves_it_the_gpu(services: dict[str, dict[str, Any]]) -> None:
    lines = UNIT.read_text().splitlines()
    settings = dict(line.split("=", 1) for line in lines if "=" in line and not line.startswith("#"))

    assert settings["KillMode"] == "mixed"
    assert int(settings["TimeoutStopSec"]) == seconds_of(services["worker-gpu"]["stop_grace_period"])
    assert "Environment=CUDA_DEVICE_ORDER=PCI_BUS_ID SHARDSIFT_DEVICE=cuda" in lines
    assert settings["ExecStart"].endswith("/bin/worker start")
    assert not {"PrivateDevices", "ProtectClock", "DevicePolicy", "DeviceAllow"} & set(settings)


# ---- make test-containers ------------------------------------------------------------------------------------------


def test_make_test_containers_types_the_fleet_of_the_readme() -> None:
    commands = [line.split()[:4] for line in readme_lines()]

    assert ["docker", "compose", "up", "-d"] in commands
    assert commands.count(["docker", "compose", "run", "--rm"]) == 2


def test_operations_begins_with_the_fleet_of_the_readme() -> None:
    [of_readme] = [block.text for block in blocks_of("README.md") if "docker compose up -d" in block.text]

    assert any(block.text.startswith(of_readme) for block in blocks_of("ops/README.md"))
