"""How the commands `producer` and `worker` end. Imports next to nothing, so that help comes at once."""

import sys
from collections.abc import Callable

from fleet.errors import ShardsiftError

USAGE = 2  # exit code of a user's mistake, and of a Redis that is not there


def run_command_line(name: str, command: Callable[[], None]) -> None:
    """Run a command; an error of ours, or of Redis, becomes one line on stderr and exit code 2, never a traceback."""
    try:
        command()
    except ShardsiftError as error:
        _end(f"{name}: {error}")
    except Exception as error:
        if not _is_of_redis(error):
            raise
        _end(
            f"{name}: Redis was lost midway ({' '.join(str(error).split())}). When it is back, run the same command again."
        )


def _end(line: str) -> None:
    sys.stderr.write(f"{line}\n")
    sys.exit(USAGE)


def _is_of_redis(error: Exception) -> bool:
    """By name: whoever only asks for help should not have to import redis."""
    names = {f"{kind.__module__}.{kind.__name__}" for kind in type(error).__mro__}
    return bool(names & {"redis.exceptions.RedisError", "kombu.exceptions.OperationalError"})
