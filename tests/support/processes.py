"""The commands of the product, as processes or within this one. Processes are stopped at the end of their block."""

import io
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import chdir, contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path

import huggingface_hub.constants  # noqa: F401  read here, so that no command's environment decides what later tests get
import pytest

import producer.cli
import worker.cli
from producer.local.processes import Child, running

BIN = Path(sys.executable).parent
_MAIN: dict[str, Callable[[], None]] = {"producer": producer.cli.main, "worker": worker.cli.main}


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


def call_command(
    *command: str | Path, environment: Mapping[str, str], folder: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """`producer` or `worker` in this process, without the second that its start takes.

    For tests of what a command says and does. Commands that load a model, run until they are stopped or ask the Hub, whose
    client reads its environment once, need a process.
    """
    name, *arguments = map(str, command)
    stdout, stderr = io.StringIO(), io.StringIO()
    before = dict(os.environ)  # the command puts its options into it
    with redirect_stdout(stdout), redirect_stderr(stderr), chdir(folder or "."):
        os.environ.update(environment)
        try:
            exit_code = _exit_code(name, arguments)
        finally:
            os.environ.clear()
            os.environ.update(before)
    return subprocess.CompletedProcess([name, *arguments], exit_code, stdout.getvalue(), stderr.getvalue())


def _exit_code(name: str, arguments: list[str]) -> int:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", [name, *arguments])
        try:
            _MAIN[name]()
        except SystemExit as end:
            return int(end.code or 0)
    return 0


@contextmanager
def started(*command: str | Path, environment: Mapping[str, str], log: Path) -> Iterator[Child]:
    """A command of .venv/bin in the background for the block, its output in `log`. It is killed at the end, with its group.

    A stop by SIGTERM takes Celery up to two seconds, and has tests of its own.
    """
    name, *arguments = map(str, command)
    with running([str(BIN / name), *arguments], log=log, stop_seconds=0, environment=environment) as child:
        yield child
