"""How the commands `producer` and `worker` end. Imports next to nothing, so that help comes at once."""

import sys
from collections.abc import Callable

from fleet.errors import ShardsiftError

USAGE = 2  # exit code of a user's mistake


def run_command_line(name: str, command: Callable[[], None]) -> None:
    """Run a command; an error of ours becomes one line on stderr and exit code 2, never a traceback."""
    try:
        command()
    except ShardsiftError as error:
        sys.stderr.write(f"{name}: {error}\n")
        sys.exit(USAGE)
