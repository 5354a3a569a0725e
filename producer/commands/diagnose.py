"""Find out what is wrong with a machine or a fleet, and collect what a bug report needs."""

from pathlib import Path
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


@commands.command(
    "debug-dump", rich_help_panel="Help", epilog="Example: producer debug-dump --output ./for-the-bug-report.tar.gz"
)
def debug_dump(
    run_id: Annotated[
        str | None,
        typer.Argument(metavar="[RUN]", help="The id of a run or a training. Default: the newest run and training."),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(metavar="FILE.tar.gz", help="A new file. Default: shardsift-debug-<time>.tar.gz here."),
    ] = None,
) -> None:
    """Write one archive for a bug report, without passwords, tokens and signatures.

    Contains versions, settings, what the doctor finds, the workers, the ledger's state of all runs and trainings, what has
    failed with its errors, and the logs of `producer run`. Its README.txt says how to collect the logs of a fleet. Paths,
    hosts and datasets are named, so look into it before you send it.
    """
    import time

    from fleet.command_line import say
    from fleet.doctor.report import exit_now
    from fleet.settings import read_settings
    from producer.debug_dump.archive import write_archive
    from producer.debug_dump.collect import entries

    settings = read_settings()
    file = output or Path(f"shardsift-debug-{time.strftime('%Y%m%d-%H%M%S')}.tar.gz")
    for written in write_archive(entries(settings, run_id), settings, file):
        say(written)
    say("It holds paths, host names and names of datasets and models. Look into it before you send it.")
    typer.echo(file)
    exit_now(0)
