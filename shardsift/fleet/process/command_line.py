"""Shared by the commands `producer` and `worker`: how they start, print and exit.

Imports almost nothing, so that help appears at once.
"""

import inspect
import io
import json
import os
import re
import sys
import textwrap
import traceback
from collections.abc import Callable, Iterable
from itertools import pairwise
from pathlib import Path
from shutil import get_terminal_size
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import typer
from typer.core import TyperCommand, TyperGroup

from shardsift.fleet.errors import ExitCode, ShardsiftError, TransientError, UsageError, lack_of
from shardsift.fleet.process.environment import keep_docstrings, leave_out_others
from shardsift.fleet.process.wording import wrapped

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table


# Hundreds of Celery processes need not synchronise with each other.
QUIET = ("--without-mingle", "--without-gossip")
_OF_PYDANTIC = "Value error, "  # pydantic's prefix, which typer leaves in its message about a wrong choice
_VALUES = {
    "bool": "",
    "int(eger)?": " N",
    "float": " X",
    "(str|text)": " TEXT",
    "path": " FILE",
}  # option's type → its value in the help
_LIMITS = r"(?:-?[\d.]+<=?)?x[<>]=?-?[\d.]+"
_RANGE = re.compile(rf"\s*\[{_LIMITS}\]|;\s*{_LIMITS}(?=\])")
_NAMES_WIDTH = 30  # characters of the column of options
_WIDE = 240  # characters per line if stdout is not a terminal
_FEWEST_COLUMNS = 2  # columns that even a narrow table shows: the id and the state


def new_command_line(name: str, *, help: str) -> typer.Typer:
    cli = Commands(
        name=name,
        help=help,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        context_settings={"max_content_width": 120, "help_option_names": ["-h", "--help"]},
    )
    cli.callback()(_options_of_every_command)
    return cli


def run_command_line(name: str, command: Callable[[], None]) -> None:
    """Run a command.

    Errors of shardsift and Redis become one line on stderr and an exit code; others print a traceback.
    """
    leave_out_others()
    keep_docstrings()
    if isinstance(sys.stdout, io.TextIOWrapper):  # None if it is closed
        sys.stdout.reconfigure(errors="replace")  # a terminal without Unicode shows ? and the command goes on
    try:
        command()
    except TransientError as error:
        _end(
            f"{name}: {error} Run the same command again later.",
            ExitCode.USAGE if error.of_machine else ExitCode.RUNNING,
        )
    except ShardsiftError as error:
        _end(f"{name}: {error}")
    except Exception as error:
        if cause := _wrong_settings(error) or lack_of(error) or _lacking():
            _end(f"{name}: {cause}")
        if not _is_of_redis(error):
            traceback.print_exc()
            _end(f"{name}: this error was not expected. Please report it with the lines above.", ExitCode.UNEXPECTED)
        from shardsift.fleet.process.redis_away import as_ours

        _end(f"{name}: {as_ours(error)} Run the same command again later.")


def own_command(*arguments: str) -> list[str]:
    """Return the command line that runs `shardsift` as a child. -P keeps the current folder off the module path."""
    return [sys.executable, "-P", "-m", "shardsift", *arguments]


def say(line: str) -> None:
    """Print a message for the user on stderr; stdout is for data."""
    typer.echo(fitted(line, sys.stderr), err=True)


def fitted(line: str, stream: TextIO) -> str:
    return wrapped(line, get_terminal_size().columns) if stream.isatty() else line


def print_json(value: object) -> None:
    typer.echo(json.dumps(value, indent=2))


def print_table(table: object) -> None:
    _console().print(table)


def print_with_whole_ids(table: "Table") -> None:
    """Print a table without cutting its first column. Leaves out the last columns if the terminal is too narrow."""
    console = _console()
    left_out = []
    while (width := _natural_width(table, console)) > console.width and len(table.columns) > _FEWEST_COLUMNS:
        left_out.append(str(table.columns.pop().header))
    console.width = max(width, console.width)  # let the terminal wrap a line instead of cutting an id
    console.print(table)
    if left_out:
        say(f"For {', '.join(reversed(left_out))}, use a wider terminal or --json.")


def _natural_width(table: "Table", console: "Console") -> int:
    from rich.measure import Measurement

    return Measurement.get(console, console.options.update(width=_WIDE), table).maximum


def _console() -> "Console":
    from rich.console import Console

    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = _WIDE
    return console


class Commands(typer.Typer):
    """A group of subcommands with plain help.

    The help lists them under `panel`, unless a command names another heading.
    """

    def __init__(self, *, panel: str | None = None, **settings: Any) -> None:
        super().__init__(cls=_Group, rich_markup_mode=None, **settings)
        self._panel = {"rich_help_panel": panel} if panel else {}

    def command(self, name: str | None = None, **settings: Any) -> Any:
        return super().command(name, cls=_Command, **{**self._panel, **settings})


class _PlainHelp:
    """Help without boxes. Lines never break at a hyphen, so that commands can be copied."""

    help: str | None
    epilog: str | None

    def format_help_text(self, ctx: Any, formatter: Any) -> None:
        _write_text(self.help, formatter)

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        _write_text(self.epilog, formatter)


class _Command(_PlainHelp, TyperCommand):
    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse arguments. For an unknown option, also suggest options whose help mentions its name.

        For example, suggest --min-score for --threshold.
        """
        given = [*args]
        self._check_values(given)
        ctx.allow_extra_args = True  # our message about them says more than Click's
        try:
            rest: list[str] = super().parse_args(ctx, args)
        except typer.BadParameter:
            raise
        except Exception as error:
            if getattr(error, "possibilities", None) == []:
                error.possibilities = self._options_about(error.option_name)  # type: ignore[attr-defined]
            raise
        if rest and not ctx.resilient_parsing:
            raise UsageError(_about_extra(rest, given))
        return rest

    def _check_values(self, given: list[str]) -> None:
        """Raise UsageError if an option lacks its value, or if a long option has only one dash.

        Without this check, Click would use the next option as the missing value.
        """
        with_value = {name for option in self.params if _takes_value(option) for name in option.opts}
        names = {name for option in self.params for name in option.opts if name.startswith("-")}
        for option, following in pairwise([*given, ""]):
            if option in with_value and following in names:
                raise UsageError(f"{option} has no value: {following} follows it.")
            if option.startswith("-") and f"-{option}" in names:
                raise UsageError(f"There is no option {option}. Did you mean -{option}?")

    def _options_about(self, word: str) -> list[str]:
        about = re.compile(rf"\b{re.escape(word.strip('-'))}", re.IGNORECASE)
        return [option.opts[0] for option in self.params if about.search(getattr(option, "help", None) or "")]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        _write_options(self.get_params(ctx), ctx, formatter)


class _Group(_PlainHelp, TyperGroup):
    def format_options(self, ctx: Any, formatter: Any) -> None:
        shown = [command for command in self.commands.values() if not command.hidden]
        _write_parts(
            ((_panel(one, "Commands"), (str(one.name), one.get_short_help_str(1000))) for one in shown), formatter
        )
        _write_options(self.get_params(ctx), ctx, formatter)

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except typer.BadParameter as error:
            error.message = _with_value(error)
            raise


def _takes_value(option: Any) -> bool:
    return option.opts[0].startswith("--") and not getattr(option, "is_flag", False)


def _about_extra(extra: list[str], given: list[str]) -> str:
    """Return an error message for values that belong to no option.

    Usually the shell has split a glob or a text with spaces into several values.
    """
    before, first = given[: given.index(extra[0])], Path(extra[0])
    if len(before) > 1 and before[-2].startswith("-") and not before[-1].startswith("--"):
        option, value = before[-2:]
        if Path(value).exists() and first.exists():
            glob = first.with_name(f"*{first.suffix}")
            made = f"{option} takes one value, and the shell has made {len(extra) + 1:,} of it"
            return f"{made}: quote the glob, {option} '{glob}'."
        whole = " ".join([value, *extra])
        return f"{' '.join(extra)!r} belongs to no option. If it is a part of {option}, quote all of it: {option} {whole!r}."
    return f"{' '.join(extra)!r} belongs to no option. Write a value after its option; --help lists them."


def _with_value(error: typer.BadParameter) -> str:
    message = error.message.removeprefix(_OF_PYDANTIC)
    wrong = getattr(error.__cause__, "errors", None)
    return message.replace("Input ", f"{wrong()[0]['input']!r} ", 1) if wrong else message


def _write_options(parameters: Iterable[Any], ctx: Any, formatter: Any) -> None:
    options = [one for one in parameters if one.param_type_name == "option" and not one.hidden]
    options.sort(key=lambda one: _panel(one) is None)
    _write_parts(((_panel(one, "Options"), _plainly(one, ctx)) for one in options), formatter)


def _write_parts(rows: Iterable[tuple[str, tuple[str, str]]], formatter: Any) -> None:
    parts: dict[str, list[tuple[str, str]]] = {}
    for title, row in rows:
        parts.setdefault(title, []).append(row)
    for title, found in parts.items():
        column = min(max(len(name) for name, _ in found) + 4, _NAMES_WIDTH)
        formatter.write(f"\n{title}:\n")
        for name, text in found:
            beside = f"  {name}".ljust(column) if len(name) + 4 <= column else f"  {name}\n{' ' * column}"
            formatter.write(
                f"{beside}{textwrap.indent(_filled(text, formatter.width - column), ' ' * column).lstrip()}\n"
            )


def _write_text(text: str | None, formatter: Any) -> None:
    for paragraph in inspect.cleandoc(text or "").split("\n\n"):
        formatter.write(f"\n{textwrap.indent(_filled(paragraph, formatter.width - 2), '  ')}\n" if paragraph else "")


def _filled(text: str, width: int) -> str:
    return textwrap.fill(" ".join(text.split()), width, break_on_hyphens=False, break_long_words=False)


def _panel(part: Any, otherwise: Any = None) -> Any:
    name = getattr(part, "rich_help_panel", None)
    return name if isinstance(name, str) else otherwise


def _plainly(option: Any, ctx: Any) -> tuple[str, str]:
    """Return an option and its help in plain notation.

    For example, `auto|float32` instead of `<auto|float32>`, and `N` instead of `<int range> [x>=1]`.
    """
    names, text = (_RANGE.sub("", part) for part in option.get_help_record(ctx))
    for kind, value in _VALUES.items():
        names = re.sub(rf" <?{kind}( range)?>?(?=\s|$)", value, names, flags=re.IGNORECASE)
    return re.sub(r" [<\[](\w+(\|\w+)+)[>\]]", r" \1", names), text.replace("; [", " [").replace("  [", " [")


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"shardsift {version('shardsift')}")
        raise typer.Exit


def _options_of_every_command(
    _version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_print_version, help="Show the version and exit.")
    ] = False,
) -> None: ...


def _end(line: str, code: ExitCode = ExitCode.USAGE) -> None:
    sys.stderr.write(f"{fitted(line, sys.stderr)}\n")
    sys.exit(code)


def _wrong_settings(error: Exception) -> str:
    """Return a message that names the settings that a library failed to read when it was imported.

    Empty if the error has another cause.
    """
    modules = {frame.f_globals.get("__name__") for frame, _ in traceback.walk_tb(error.__traceback__)}
    if "huggingface_hub.constants" in modules:
        found = [name for name, value in os.environ.items() if name.startswith("HF_") and repr(value) in str(error)]
        return f"The environment variable {' or '.join(found) or 'HF_…'} is wrong: {error}."
    if "fsspec.config" in modules:
        folder = os.environ.get("FSSPEC_CONFIG_DIR", "~/.config/fsspec")
        return f"The settings of fsspec in {folder} cannot be read: {error}. Correct or remove them."
    return ""


def _lacking() -> str:
    try:
        Path.cwd()
    except FileNotFoundError:
        return "The working folder was deleted. Change to another one, and run the command again."
    try:
        Path.home()
    except RuntimeError:
        return "This user has no home folder. Set HOME to a folder that it may write."
    return ""


def _is_of_redis(error: Exception) -> bool:
    """Return whether redis-py raised the error. Compares module names, so that help need not import redis."""
    return any(kind.__module__ == "redis.exceptions" for kind in type(error).__mro__)
