"""Commands that run a service until it is stopped, check a fleet, or show a demo."""

from pathlib import Path
from typing import Annotated

import typer

from shardsift.fleet.errors import ExitCode
from shardsift.fleet.process.command_line import Commands
from shardsift.producer.commands.shared import AsJson, read_settings

commands = Commands(panel="Services")


@commands.command(
    epilog="Example: REDIS_URL=redis://10.0.0.5:6379/0 REDIS_PASSWORD_FILE=./redis_password producer finalizer"
)
def finalizer() -> None:
    """Serve a fleet: find lost messages and dead workers, and publish finished runs. Run one or more."""
    from shardsift.fleet.errors import UsageError
    from shardsift.fleet.process.children import end_process
    from shardsift.fleet.process.logs import log_to_stderr, write_last_line
    from shardsift.producer.finalizer import run_finalizer

    log_to_stderr()
    try:
        run_finalizer(read_settings())
    except UsageError as error:
        write_last_line("finalizer", str(error))
        raise typer.Exit(ExitCode.USAGE) from error
    end_process(0)


@commands.command(epilog="Example: SHARDSIFT_FLOWER_AUTH_FILE=./flower_auth producer flower --port 5555")
def flower(
    address: Annotated[
        str, typer.Option(help="Address to listen on. 0.0.0.0 only behind a proxy with TLS.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port to listen on.")] = 5555,
) -> None:
    """Show the fleet in a browser with Flower: read-only, with a password and a stored history."""
    from shardsift.fleet.process.children import end_process
    from shardsift.producer.flower.start import run_flower

    run_flower(read_settings(), address=address, port=port)
    end_process(0)  # even if threads are left that retry forever while Redis is down


# Find out what is wrong with a machine or a fleet.


@commands.command(rich_help_panel="Help", epilog="Example: producer doctor")
def doctor(as_json: AsJson = False) -> None:
    """Check this machine and its fleet: Redis, workers, finalizer, the Hub and its token.

    Prints a line for each check, and how to fix what is wrong. Exits with 1 if something is.
    """
    from shardsift.fleet.checks import run_checks
    from shardsift.producer.fleet_doctor import producer_checks

    run_checks(producer_checks(read_settings()), as_json=as_json)


# Show a run offline.


@commands.command(epilog="Example: producer demo")
def demo() -> None:
    """Demonstrate a run offline: real text, a small classifier, two workers. Kills one worker and compares the results.

    Writes to ./demo-output, and replaces an earlier demo. Exits with 1 if the published files differ from those of an
    undisturbed run.
    """
    from shardsift.producer.local.demo import show_demo

    raise typer.Exit(show_demo(Path("demo-output"), read_settings(), rows=100))
