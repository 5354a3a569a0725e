"""The help of every command says what its source says: rich takes text in brackets for markup and leaves it out."""

import re
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from support.processes import PROGRAMS, commands


def written(path: tuple[str, ...]) -> list[str]:
    """What the source of a command says: its description, its options, its example, and a line for each command below it."""
    command: Any = typer.main.get_command(PROGRAMS[path[0]])
    for name in path[1:]:
        command = command.commands[name]
    below = [found.get_short_help_str(1000) for found in getattr(command, "commands", {}).values() if not found.hidden]
    options = [getattr(option, "help", None) for option in command.params if not getattr(option, "hidden", False)]
    return [text for text in (command.help, command.epilog, *options, *below) if text]


@pytest.mark.parametrize("path", [path for program in PROGRAMS for path in commands(program)], ids=" ".join)
def test_help_has_an_example_and_keeps_text_in_brackets(path: tuple[str, ...]) -> None:
    texts = written(path)

    shown = CliRunner().invoke(PROGRAMS[path[0]], [*path[1:], "--help"], env={"COLUMNS": "1000"})

    assert shown.exit_code == 0
    assert "Example:" in shown.output or path[-1] in (*PROGRAMS, "serve")
    assert [found for text in texts for found in re.findall(r"\[[^]]*\]", text) if found not in shown.output] == []
