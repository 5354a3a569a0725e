"""The deployment files, read by the tools that users run.

These tests have no Docker engine: they check what the files say. `make test-containers` runs them on one.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
COMPOSE = ROOT / "docker-compose.yml"
PARTS = ROOT / "ops/compose"
INIT = PARTS / "init.sh"
DOCKERFILE = ROOT / "ops/images/Dockerfile"

PASSWORD = r"""pass"word's \ $HOME 100%"""  # characters that are special in shells, URLs and configuration files
MONITORING = ("prometheus", "grafana")
SERVICES = ("init", "redis", "finalizer", "flower", "producer", "worker-cpu", "worker-gpu", *MONITORING)


def compose(project: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the real Docker Compose, with no environment but the given one."""
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
