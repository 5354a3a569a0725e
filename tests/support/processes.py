"""Real processes of the product, started as a user would, and stopped for certain."""

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from producer.local.processes import Child, running

BIN = Path(sys.executable).parent


def run_command(
    *command: str | Path, environment: Mapping[str, str], seconds: float = 240, folder: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """A command of .venv/bin, to its end; in `folder`, if the test says one."""
    name, *arguments = map(str, command)
    return subprocess.run(
        [str(BIN / name), *arguments],
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )


@contextmanager
def started(*command: str | Path, environment: Mapping[str, str], log: Path) -> Iterator[Child]:
    """A command of .venv/bin in the background for the block, its output in `log`. It is killed at the end, with its group.

    A stop by SIGTERM takes Celery up to two seconds, and has tests of its own.
    """
    name, *arguments = map(str, command)
    with running([str(BIN / name), *arguments], log=log, stop_seconds=0, environment=environment) as child:
        yield child
