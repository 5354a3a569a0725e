"""A machine of the fleet: a clone of the repository, and a shell in which an operator types commands."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from containers.engine import Engine
from containers.report import say
from support.waiting import wait_until

_SECONDS = 300.0


class Machine:
    """A clone of the repository, and a shell in it.

    All machines share the engine. They differ in their folder and their Compose project.
    """

    def __init__(self, engine: Engine, source: Path, folder: Path, *, project: str | None = None) -> None:
        self.folder = folder
        self._engine = engine
        self._variables = folder.with_suffix(".variables")  # those that earlier lines have exported
        self._environment = engine.environment | {"COMPOSE_PROGRESS": "quiet"}  # errors are printed all the same
        if project:
            self._environment["COMPOSE_PROJECT_NAME"] = project
        clone(source, folder)

    def type(self, line: str, *, codes: tuple[int, ...] = (0,), seconds: float = _SECONDS) -> str:
        """Run a line in the shell. Prints the line and its output, and returns the output.

        Fails for an exit code that is not in `codes`.
        """
        say(f"    $ {line}")
        output = self.run(line, codes=codes, seconds=seconds)
        for printed in output.splitlines():
            say(f"      {printed}")
        return output

    def run(self, line: str, *, codes: tuple[int, ...] = (0,), seconds: float = _SECONDS) -> str:
        script = f'[ ! -e "$0" ] || . "$0"\n{line}\ncode=$?\nexport -p > "$0"\nexit $code'
        done = subprocess.run(
            ["bash", "-c", script, self._variables],
            cwd=self.folder,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=seconds,
            check=False,
        )
        assert done.returncode in codes, f"`{line}` ended with {done.returncode}:\n{done.stdout}"
        return done.stdout

    def status(self) -> dict[str, Any]:
        """Return the status of the newest run. Asks the finalizer's container, which is faster than a new container."""
        said = self.run("docker compose exec -T finalizer producer status --json 2>/dev/null", codes=(0, 1, 2, 3))
        return json.loads(said) if said.startswith("{") else {}

    def wait_for(
        self, reached: Callable[[dict[str, Any]], bool], description: str, *, seconds: float = _SECONDS
    ) -> dict[str, Any]:
        return wait_until(
            lambda: (found := self.status()) and reached(found) and found, description=description, seconds=seconds
        )

    def containers(self) -> set[str]:
        listed = self.run('docker ps --all --format "{{.Names}}"').split()
        name = self._environment.get("COMPOSE_PROJECT_NAME", "shardsift")
        return {container for container in listed if container.startswith(f"{name}-")}


def clone(source: Path, folder: Path) -> None:
    """Clone what is committed. The clone is readable only for its owner, as with a careful user's umask."""
    subprocess.run(["bash", "-c", 'umask 077 && git clone --quiet "$0" "$1"', source, folder], check=True)
