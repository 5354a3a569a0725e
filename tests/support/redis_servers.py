"""A Redis of a test's own that can be killed, frozen, emptied and started again where it was."""

import os
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import redis

from producer.local.processes import Child, running
from producer.local.redis_server import find_redis_server
from support.fleet import Fleet
from support.waiting import wait_until


class RedisServer:
    """Its data and its socket's path outlive each of its lives. Make it by `redis_server`."""

    def __init__(self, folder: Path, socket: Path, options: tuple[str, ...]) -> None:
        self.folder = folder
        self.socket = socket
        self._options = options
        self._life = ExitStack()
        self._process: Child | None = None

    @property
    def url(self) -> str:
        return f"unix://{self.socket}"

    @property
    def client(self) -> redis.Redis:
        return redis.Redis(unix_socket_path=str(self.socket), decode_responses=True)

    def start(self) -> None:
        self.folder.mkdir(exist_ok=True)
        place = ["--port", "0", "--unixsocket", str(self.socket), "--dir", str(self.folder)]
        command = [find_redis_server(), *place, "--appendonly", "yes", "--save", "", *self._options]
        self._process = self._life.enter_context(running(command, log=self.folder / "log", stop_seconds=10))
        wait_until(lambda: answers(self.client), description="Redis answers", seconds=10)

    def stop(self) -> None:
        """With SIGTERM, so that it saves its data."""
        self._life.close()

    def kill(self) -> None:
        assert self._process
        self._process.kill()
        self._life.close()

    def lose_data(self) -> None:
        """Between two lives: the next one begins with nothing."""
        shutil.rmtree(self.folder)

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """It accepts connections, and answers nobody."""
        assert self._process
        os.kill(self._process.pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(self._process.pid, signal.SIGCONT)


@contextmanager
def redis_server(folder: Path, *options: str) -> Iterator[RedisServer]:
    """A running server, with its data in `folder`."""
    with tempfile.TemporaryDirectory(prefix="redis-") as place:  # a socket's path may have 107 characters at most
        server = RedisServer(folder, Path(place, "s"), options)
        server.start()
        try:
            yield server
        finally:
            server.stop()


@dataclass(frozen=True, order=True)
class ServerVersion:
    """`name` is Redis or Valkey."""

    name: str
    version: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.name} {'.'.join(map(str, self.version))}"


def version_of(client: redis.Redis) -> ServerVersion:
    """What a server says of itself. Valkey also gives a version of Redis, for the sake of old clients."""
    said = client.info("server")
    name = "Valkey" if "valkey_version" in said else "Redis"
    return ServerVersion(name, _numbers(said[f"{name.lower()}_version"]))


def version_found() -> ServerVersion:
    """Of the program that tests and product start when they need a server. Raises UsageError where there is none."""
    command = [find_redis_server(), "--version"]
    said = subprocess.run(command, capture_output=True, text=True, check=True, timeout=30).stdout
    return ServerVersion(said.split()[0], _numbers(re.findall(r"v=(\S+)", said)[0]))


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


def answers(client: redis.Redis) -> bool:
    """Whether it does; one that asks for a password does."""
    try:
        return bool(client.ping())
    except redis.AuthenticationError:
        return True
    except redis.RedisError:
        return False
    finally:
        client.close()


def moved(fleet: Fleet, url: str) -> Fleet:
    """The same fleet on another Redis, or on another way to it."""
    return replace(fleet, redis_url=url, environment={**fleet.environment, "REDIS_URL": url})
