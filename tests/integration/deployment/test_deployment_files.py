"""The Dockerfile agrees with the compose file and the repository."""

import re
import subprocess
from typing import Any

from containers.walk import readme_lines
from support.compose import BIN, DOCKERFILE, OURS, ROOT


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
    assert {source for source in copied if not list(ROOT.glob(source))} == set()
    assert copied >= {"producer", "shardsift", "worker"}


def test_every_image_that_compose_builds_is_a_target_of_the_dockerfile(services: dict[str, dict[str, Any]]) -> None:
    targets = set(re.findall(r"^FROM \S+ AS (\S+)$", DOCKERFILE.read_text(), re.MULTILINE))

    assert {services[name]["build"]["target"] for name in OURS} == {"light", "cpu", "gpu"}
    assert targets >= {"light", "cpu", "gpu"}


def test_make_test_containers_types_the_fleet_of_the_readme() -> None:
    commands = [line.split()[:4] for line in readme_lines()]

    assert ["docker", "compose", "up", "-d"] in commands
    assert commands.count(["docker", "compose", "run", "--rm"]) == 2
