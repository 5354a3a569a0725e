"""What no linter knows of the deployment files: that the settings, commands and files that they name are ours.

`make check` gives the files to their linters.
"""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from typer.main import get_command

from shardsift.fleet.process.settings import Settings
from shardsift.producer.cli import cli as producer_cli
from shardsift.worker.cli import cli as worker_cli
from support.compose import COMPOSE, DOCKERFILE, ROOT
from support.machine_files import FINALIZER_UNIT, OPS, POWER_OFF, UNIT, started_by

GROUPS: dict[str, Any] = {"producer": get_command(producer_cli), "worker": get_command(worker_cli)}
OF_THE_FILES = {"SHARDSIFT_ENV", "SHARDSIFT_VENV", "SHARDSIFT_GRAFANA_PASSWORD"}  # variables of their own


def lists_in(found: Any) -> Iterator[list[Any]]:
    """All lists of a YAML document. A command is one."""
    if isinstance(found, list):
        yield found
    for part in found.values() if isinstance(found, dict) else found if isinstance(found, list) else ():
        yield from lists_in(part)


def in_yaml() -> list[list[Any]]:
    files = [COMPOSE, *OPS.glob("kubernetes/*.yaml")]
    return [
        found for file in files for document in yaml.safe_load_all(file.read_text()) for found in lists_in(document)
    ]


def test_every_setting_that_is_named_exists() -> None:
    known = {f"SHARDSIFT_{name.upper()}" for name in Settings.model_fields} | OF_THE_FILES
    files = [COMPOSE, ROOT / ".env.example", *(path for path in OPS.rglob("*") if path.is_file())]

    named = {(file.name, name) for file in files for name in re.findall(r"\bSHARDSIFT_\w*[A-Z]", file.read_text())}

    assert len(named) > 20
    assert [(file, name) for file, name in sorted(named) if name not in known] == []


def test_every_command_is_accepted() -> None:
    units = [started_by(file) for file in (UNIT, POWER_OFF, FINALIZER_UNIT)]
    commands = [*units, *(line for line in in_yaml() if line[:1] in (["producer"], ["worker"]) and line[1:])]

    assert len(commands) > 6
    for program, name, *arguments in commands:
        GROUPS[Path(program).name].commands[name].make_context(name, arguments, resilient_parsing=False)


def test_every_python_of_a_health_check_finds_what_it_imports() -> None:
    imports = {line[3].rpartition(";")[0] for line in in_yaml() if line[1:3] == ["python", "-c"]}

    assert len(imports) > 2
    assert subprocess.run([sys.executable, "-c", "\n".join(imports)], check=False, timeout=60).returncode == 0


def test_the_dockerfile_copies_only_what_the_repository_has_and_docker_is_shown() -> None:
    shown = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    lines = [line.split()[1:-1] for line in DOCKERFILE.read_text().splitlines() if line.startswith("COPY ")]

    copied = {source for sources in lines for source in sources if not source.startswith("--")}

    assert copied == shown
    assert {source for source in copied if not list(ROOT.glob(source))} == set()
    assert copied >= {"producer", "shardsift", "worker"}
