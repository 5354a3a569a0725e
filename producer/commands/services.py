"""Run a service of the fleet until it is stopped."""

from typing import Annotated

import typer

from fleet.choices import LogLevel
from fleet.command_line import USAGE, Commands

commands = Commands()


@commands.command(
    rich_help_panel="Services",
    epilog="Example: REDIS_URL=redis://10.0.0.5:6379/0 REDIS_PASSWORD_FILE=./redis_password producer finalizer",
)
def finalizer(
    log_level: Annotated[LogLevel, typer.Option(case_sensitive=False, help="Lowest level to log.")] = "INFO",
) -> None:
    """Serve a fleet: find lost messages and dead workers, and publish finished runs. Run one or more."""
    from fleet.errors import UsageError
    from fleet.log_format import log_to_stderr, write_last_line
    from fleet.settings import read_settings
    from producer.finalizer.loop import run_finalizer

    log_to_stderr(log_level)
    try:
        run_finalizer(read_settings())
    except UsageError as error:
        write_last_line("finalizer", str(error))
        raise typer.Exit(USAGE) from error


@commands.command(
    rich_help_panel="Services", epilog="Example: SHARDSIFT_FLOWER_AUTH_FILE=./flower_auth producer flower --port 5555"
)
def flower(
    address: Annotated[
        str, typer.Option(help="Address to listen on. Use 0.0.0.0 only behind a proxy with TLS.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port to listen on.")] = 5555,
) -> None:
    """Show the fleet in a browser with Flower: read-only, with a password and a stored history."""
    from fleet.settings import read_settings
    from producer.flower.start import run_flower

    run_flower(read_settings(), address=address, port=port)
