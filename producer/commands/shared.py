"""Options and reports that several commands share."""

import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated

import typer

from shardsift.fleet.process.command_line import fitted, print_json

if TYPE_CHECKING:
    from shardsift.fleet.process.settings import Settings
    from shardsift.producer.status import RunStatus

RunId = Annotated[
    str | None,
    typer.Argument(metavar="[RUN]", help="A run id, or its beginning. Default: the only run that is under way."),
]
Target = Annotated[
    str, typer.Argument(metavar="RUN|URI", help="A run id, or its beginning; or the place it was published to.")
]
OnlyRunOrTarget = Annotated[
    str | None,
    typer.Argument(
        metavar="[RUN|URI]",
        help="A run id, or its beginning; or the place it was published to. Default: the only run that there is.",
    ),
]
ScoreColumn = Annotated[str | None, typer.Option(metavar="NAME", help="Score column, if the run has several.")]
Source = Annotated[
    list[str] | None,
    typer.Option("--input", metavar="URI", help="The input, if the ledger does not have the run. May be repeated."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON on stdout.")]
DryRun = Annotated[
    bool,
    typer.Option(
        "--dry-run",
        help="Show the plan, and estimate tokens, GPU-hours and cost. Starts and writes nothing.",
    ),
]
ScoreAgain = Annotated[
    bool,
    typer.Option("--score-again", help="Score rows that another run has scored, with another filter."),
]
Verify = Annotated[bool, typer.Option("--verify", help="Compare the sha256 of published files, not only their sizes.")]


def report(status: "RunStatus", *, as_json: bool) -> None:
    """Print a run's status, then exit with the exit code of that status."""
    print_found(str(status).splitlines(), status.as_json(), as_json=as_json)
    raise typer.Exit(status.exit_code)


def print_found(lines: Iterable[str], value: object, *, as_json: bool) -> None:
    if as_json:
        print_json(value)
        return
    for line in lines:
        typer.echo(fitted(line, sys.stdout))


def read_settings() -> "Settings":
    """Read the settings. Pydantic is imported only here, so that `--help` stays fast."""
    from shardsift.fleet.process import settings

    return settings.read_settings()
