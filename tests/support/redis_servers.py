"""A separate Redis for one test, which can be killed, frozen, emptied and restarted."""

import os
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from shardsift.fleet.process.children import Child, running
from shardsift.producer.local.redis import find_redis_server
from support.fleet import Fleet
from support.waiting import wait_until

_STOP_SECONDS = 20.0
_ANSWER_SECONDS = 0.5


class RedisServer:
    """A server that can be killed. Its data, in `data`, and the path of its socket outlive its process.

    It has the product's settings, with `appendfsync everysec`. A kill loses no write that Redis has answered, because
    the kernel has all of them. For losses in a power failure, see `chaos/power.py`.
    """

    def __init__(self, folder: Path, socket: Path, options: tuple[str, ...]) -> None:
        self.data = folder / "data"
        self.socket = socket
        self._log = folder / "redis.log"
        self._options = options
        self._life = ExitStack()
        self.process: Child

    @property
    def url(self) -> str:
        return f"unix://{self.socket}"

    @property
    def client(self) -> redis.Redis:
        return redis.Redis(unix_socket_path=str(self.socket), decode_responses=True)

    def start(self) -> None:
        """Start the server, and wait until it answers."""
        self.launch()
        wait_until(lambda: self.answers, description="Redis answers", seconds=30)

    def launch(self) -> None:
        """Start the server after its earlier process has ended.

        Call this in the main thread, because the kernel ends a process together with the thread that started it.
        """
        self._life.close()
        self.data.mkdir(parents=True, exist_ok=True)
        place = ["--port", "0", "--unixsocket", str(self.socket), "--dir", str(self.data)]
        durability = ["--appendonly", "yes", "--appendfsync", "everysec", "--save", ""]
        command = [find_redis_server(), *place, *durability, "--maxmemory-policy", "noeviction", *self._options]
        self.process = self._life.enter_context(running(command, log=self._log, stop_seconds=_STOP_SECONDS))

    def stop(self) -> None:
        """Stop the server with SIGTERM, so that it saves its data."""
        self._life.close()

    def kill(self) -> None:
        """Kill the server, and the process that rewrites its append-only file, if there is one."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def freeze(self) -> None:
        """Freeze the server. It then accepts connections, but answers no request."""
        self.process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    @contextmanager
    def frozen(self) -> Iterator[None]:
        self.freeze()
        try:
            yield
        finally:
            self.thaw()

    @property
    def answers(self) -> bool:
        """Whether the server answers, even if it only asks for a password."""
        with redis.Redis(
            unix_socket_path=str(self.socket), socket_timeout=_ANSWER_SECONDS, retry=Retry(NoBackoff(), 0)
        ) as client:
            try:
                return bool(client.ping())
            except redis.AuthenticationError:
                return True
            except redis.RedisError:
                return False


@contextmanager
def redis_server(folder: Path, *options: str) -> Iterator[RedisServer]:
    """Run a server during the block, with its data and its log in `folder`."""
    with tempfile.TemporaryDirectory(prefix="redis-") as place:  # a socket's path may have 107 characters at most
        server = RedisServer(folder, Path(place, "s"), options)
        try:
            server.start()
            yield server
        finally:
            server.stop()


def version_found() -> str:
    """What the server program that tests and the product start says of itself. Raises UsageError if there is none."""
    command = [find_redis_server(), "--version"]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=30).stdout.strip()


def moved(fleet: Fleet, url: str) -> Fleet:
    """Return the same fleet with another Redis, or another route to its Redis."""
    return replace(fleet, redis_url=url, environment={**fleet.environment, "REDIS_URL": url})
