"""A way to Redis over loopback TCP that can be cut, go silent or grow long."""

import asyncio
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_RESET_ON_CLOSE = struct.pack("ii", 1, 0)  # SO_LINGER: on, 0 s


class Proxy:
    """Make it by `proxied`. Its methods may be called from any thread."""

    def __init__(self, upstream: Path, loop: asyncio.AbstractEventLoop) -> None:
        self._upstream = upstream
        self._loop = loop
        self._writers: set[asyncio.StreamWriter] = set()
        self._silent: set[asyncio.StreamWriter] = set()
        self._is_silent = False
        self._delay_seconds = 0.0
        self._requests_left: int | None = None
        self.cuts = 0

    async def listen(self) -> asyncio.Server:
        return await asyncio.start_server(self._serve, "127.0.0.1", 0)

    def cut(self) -> int:
        """Reset every connection; returns how many there were."""
        number = asyncio.run_coroutine_threadsafe(self._cut(), self._loop).result()
        self.cuts += number
        return number

    @contextmanager
    def silent(self) -> Iterator[None]:
        """Half-open: what is sent is swallowed, and nobody is told. Connections of now are dead for good."""
        self._silent |= self._writers
        self._is_silent = True
        try:
            yield
        finally:
            self._is_silent = False

    @contextmanager
    def going_away(self, *, after: int) -> Iterator[None]:
        """After so many requests every connection is reset, and each new one at its first word."""
        self._requests_left = after
        try:
            yield
        finally:
            self._requests_left = None

    def delay(self, seconds: float) -> None:
        """In each direction, from now on."""
        self._delay_seconds = seconds

    async def _cut(self) -> int:
        writers = list(self._writers)
        for writer in writers:
            _reset(writer)
        return len(writers)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.CancelledError):  # at the end of the test: asyncio would log it as an error
            await self._connect(reader, writer)
        self._close(writer)

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        if self._is_silent:
            self._silent.add(writer)
        try:
            redis_reader, redis_writer = await asyncio.open_unix_connection(str(self._upstream))
        except OSError:
            return
        try:
            await asyncio.gather(
                self._carry(reader, redis_writer, client=writer), self._carry(redis_reader, writer, client=writer)
            )
        finally:
            redis_writer.transport.abort()

    async def _carry(
        self, source: asyncio.StreamReader, target: asyncio.StreamWriter, *, client: asyncio.StreamWriter
    ) -> None:
        try:
            while data := await source.read(1 << 16):
                if target is not client and self._is_gone():
                    await self._cut()
                    return
                if self._delay_seconds:
                    await asyncio.sleep(self._delay_seconds)
                if client not in self._silent:
                    target.write(data)
                    await target.drain()
        except OSError:
            pass
        finally:
            if client not in self._silent:
                target.close()

    def _is_gone(self) -> bool:
        if self._requests_left is not None:
            self._requests_left -= 1
        return self._requests_left is not None and self._requests_left < 0

    def _close(self, writer: asyncio.StreamWriter) -> None:
        self._writers.discard(writer)
        self._silent.discard(writer)
        writer.transport.abort()


def _reset(writer: asyncio.StreamWriter) -> None:
    connection = writer.get_extra_info("socket")
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
    writer.transport.abort()


@contextmanager
def proxied(upstream: Path) -> Iterator[tuple[Proxy, str]]:
    """A proxy to the Redis at this socket, and its address, host:port."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    proxy = Proxy(upstream, loop)
    server = asyncio.run_coroutine_threadsafe(proxy.listen(), loop).result()
    host, port = server.sockets[0].getsockname()
    try:
        yield proxy, f"{host}:{port}"
    finally:
        asyncio.run_coroutine_threadsafe(_ended(server), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


async def _ended(server: asyncio.Server) -> None:
    server.close()
    tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await asyncio.sleep(0)  # the transports close their sockets
