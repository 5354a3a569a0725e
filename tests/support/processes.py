"""Run the commands of the product, as processes or within this one. Processes are stopped at the end of their block."""

import io
import os
import runpy
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import chdir, contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import huggingface_hub.constants  # noqa: F401  read here, so that no command's environment decides what later tests get
import pytest
import typer

import shardsift.cli
import shardsift.producer.cli
import shardsift.worker.cli
from shardsift.fleet.process.children import Child, running

BIN = Path(sys.executable).parent
_HOMES = {"producer": shardsift.producer.cli, "shardsift": shardsift.cli, "worker": shardsift.worker.cli}
PROGRAMS: dict[str, typer.Typer] = {name: home.cli for name, home in _HOMES.items()}
_MAIN: dict[str, Callable[[], None]] = {name: home.main for name, home in _HOMES.items()}


def commands(program: str) -> Iterator[tuple[str, ...]]:
    """Yield the words that call the program, then the words that call each of its commands."""

    def below(command: Any, path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
        yield path
        for name, found in getattr(command, "commands", {}).items():
            yield from below(found, (*path, name))

    yield from below(typer.main.get_command(PROGRAMS[program]), (program,))


def run_command(
    *command: str | Path, environment: Mapping[str, str], seconds: float = 240, folder: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a command of .venv/bin to its end. `folder` is its working directory."""
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
    """Run `producer` or `worker` within this process, which saves the second that a start takes.

    This is for tests of a command's output and effects. A command needs its own process if it loads a model, runs
    until it is stopped, or uses the Hub, whose client reads its environment only once.
    """
    name, *arguments = map(str, command)
    stdout, stderr = io.StringIO(), io.StringIO()
    before = dict(os.environ)  # the command stores its options there
    with redirect_stdout(stdout), redirect_stderr(stderr), chdir(folder or "."):
        os.environ.update(environment)
        try:
            exit_code = _exit_code(_MAIN[name], name, arguments)
        finally:
            os.environ.clear()
            os.environ.update(before)
    return subprocess.CompletedProcess([name, *arguments], exit_code, stdout.getvalue(), stderr.getvalue())


def call_script(script: Path, *arguments: object) -> int:
    """Run a Python script within this process, which may already have imported torch. Returns its exit code."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(script.parent)  # as Python does
        return _exit_code(
            lambda: runpy.run_path(str(script), run_name="__main__"), str(script), list(map(str, arguments))
        )


def _exit_code(main: Callable[[], object], name: str, arguments: list[str]) -> int:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", [name, *arguments])
        try:
            main()
        except SystemExit as end:
            return int(end.code or 0)
    return 0


@contextmanager
def started(*command: str | Path, environment: Mapping[str, str], log: Path) -> Iterator[Child]:
    """Run a command of .venv/bin in the background during the block, then kill its process group.

    Its output goes to `log`. Tests of a clean shutdown send SIGTERM, which takes Celery up to two seconds.
    """
    name, *arguments = map(str, command)
    with running([str(BIN / name), *arguments], log=log, stop_seconds=0, environment=environment) as child:
        yield child
