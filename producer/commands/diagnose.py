"""Find out what is wrong with a machine or a fleet."""

from typing import Annotated

import typer

from fleet.command_line import Commands
from producer.commands.arguments import AsJson

commands = Commands()


@commands.command(
    rich_help_panel="Help",
    epilog="Example: producer doctor --input './shards/*.parquet' --output hf://datasets/me/kept",
)
def doctor(
    input_uris: Annotated[
        list[str] | None,
        typer.Option("--input", metavar="URI", help="Also check that this input can be read. May be repeated."),
    ] = None,
    output: Annotated[
        str | None,
        typer.Option(metavar="URI", help="Also check that this output can be written. Leaves nothing behind."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Check this machine and its fleet: Redis, the Hub and its token, disks, workers, finalizer.

    Prints a line for each check: ok, warning or wrong, and how to mend it. Checks that depend on a failed one are left out.
    Exits with 0 if nothing is wrong, 1 if something is, and 2 for wrong options.
    """
    from fleet.doctor.report import report
    from fleet.settings import read_settings
    from producer.doctor.checks import producer_checks

    report(producer_checks(read_settings(), input_uris=input_uris or (), output_uri=output), as_json=as_json)
