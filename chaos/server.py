"""A Redis that may be killed: it comes back on the same socket with what its append-only file holds.

It runs as the product ships it, with `appendfsync everysec`. A kill costs no answered write, since the kernel has them all;
what a power failure costs is in `power.py`.
"""

import shutil
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from chaos.service import Service
from producer.local.processes import Child
from producer.local.redis_server import find_redis_server


class RedisServer:
    """Its data are in `data`, its log beside them."""

    def __init__(self, folder: Path) -> None:
        self.data = folder / "data"
        self.data.mkdir(parents=True)
        self._socket_folder = Path(tempfile.mkdtemp(prefix="chaos-redis-"))  # a socket's path may have 107 characters
        self.socket = self._socket_folder / "redis.sock"
        options = {
            "port": "0",
            "unixsocket": str(self.socket),
            "dir": str(self.data),
            "appendonly": "yes",
            "appendfsync": "everysec",
            "maxmemory-policy": "noeviction",
            "save": "",
        }
        command = [find_redis_server(), *(part for name, value in options.items() for part in (f"--{name}", value))]
        self._service = Service(command, environment={}, log=folder / "redis.log")
        self._client = redis.Redis(unix_socket_path=str(self.socket), socket_timeout=0.5, retry=Retry(NoBackoff(), 0))

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()
        self._service.stop()
        shutil.rmtree(self._socket_folder)

    @property
    def url(self) -> str:
        return f"unix://{self.socket}"

    @property
    def process(self) -> Child:
        return self._service.process

    def start(self) -> None:
        self._service.start()

    def start_again(self) -> None:
        self._service.start_again()

    def kill(self) -> None:
        """With the process that rewrites its file, if there is one."""
        self._service.signal_group(signal.SIGKILL)
        self._service.process.wait()

    def freeze(self) -> None:
        self._service.process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._service.process.send_signal(signal.SIGCONT)

    @contextmanager
    def still(self) -> Iterator[None]:
        """For the block it writes nothing, so that its data can be copied as they are at one moment."""
        self.freeze()
        try:
            yield
        finally:
            self.thaw()

    @property
    def answers(self) -> bool:
        try:
            return bool(self._client.ping())
        except redis.RedisError:
            return False
