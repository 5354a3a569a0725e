"""Check this machine."""

import json
from typing import Annotated

import typer

from fleet.command_line import Commands
from worker.commands.arguments import into_environment

commands = Commands()


@commands.command(epilog="Example: worker doctor --model ./my-classifier")
def doctor(
    models: Annotated[
        list[str] | None,
        typer.Option(
            "--model",
            metavar="MODEL",
            help="Model to try: a Hub name or folder. Give all models of a run with several. MODEL@REVISION names a revision. "
            "Default: SHARDSIFT_MODEL, else what open runs need first.",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON on stdout.")] = False,
) -> None:
    """Check this machine for a worker: GPU, driver and torch, cores, disks, Redis, the Hub, and that the model loads.

    Prints a line for each check: ok, warning or wrong, and how to mend it. Checks that depend on a failed one are left out.
    Exits with 0 if nothing is wrong, 1 if something is, and 2 for wrong options.
    """
    into_environment(model=json.dumps(models) if models else None)
    from fleet.doctor.report import report
    from fleet.settings import read_settings
    from worker.doctor.checks import worker_checks

    report(worker_checks(read_settings()), as_json=as_json)
