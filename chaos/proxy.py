"""A TCP proxy on loopback between one worker and Redis, that can break the network between them.

Knows nothing of Redis' protocol. All proxies share one thread.
"""

import asyncio
import socket
import struct
import threading
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, Self

_CHUNK_BYTES = 1 << 16
_RESET = struct.pack("ii", 1, 0)  # SO_LINGER: close by RST, as where a machine or a NAT has forgotten the connection


class Network:
    """The thread in which the proxies live."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="network", daemon=True)
        self._proxies: list[Proxy] = []

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.call(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def proxy_to(self, server_socket: Path) -> "Proxy":
        proxy = Proxy(self, server_socket)
        self.call(proxy.open())
        self._proxies.append(proxy)
        return proxy

    def call(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def _end(self) -> None:
        for proxy in self._proxies:
            await proxy.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)


class Proxy:
    """Listens on `port` of 127.0.0.1, and passes on to a unix socket."""

    def __init__(self, network: Network, server_socket: Path) -> None:
        self._network = network
        self._server_socket = server_socket
        self._writers: set[asyncio.StreamWriter] = set()
        self._swallows = False
        self._delay_seconds = 0.0
        self.port = 0

    def cut(self) -> None:
        """Reset all connections; new ones are let through."""
        self._network.call(self._cut())

    def swallow(self) -> None:
        """From here on nothing arrives on either side, and no connection is closed: half open."""
        self._swallows = True

    def delay(self, seconds: float) -> None:
        """From here on whatever is sent, either way, arrives so much later."""
        self._delay_seconds = seconds

    def heal(self) -> None:
        """Pass on again. Connections that lost bytes are reset."""
        if self._swallows:
            self._swallows = False
            self.cut()
        self._delay_seconds = 0.0

    async def open(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        self._server.close()
        await self._cut()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            there_reader, there_writer = await asyncio.open_unix_connection(str(self._server_socket))
        except OSError:  # Redis is down
            self._reset(writer)
            return
        self._writers.add(there_writer)
        try:
            await asyncio.gather(self._pass_on(reader, there_writer), self._pass_on(there_reader, writer))
        except (OSError, EOFError, asyncio.CancelledError):
            pass
        finally:
            for one in (writer, there_writer):
                self._reset(one)

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while content := await reader.read(_CHUNK_BYTES):
            if self._delay_seconds:
                await asyncio.sleep(self._delay_seconds)
            if not self._swallows:
                writer.write(content)
                await writer.drain()
        raise EOFError

    async def _cut(self) -> None:
        for writer in list(self._writers):
            self._reset(writer)

    def _reset(self, writer: asyncio.StreamWriter) -> None:
        self._writers.discard(writer)
        if connection := writer.get_extra_info("socket"):
            if connection.family == socket.AF_INET and connection.fileno() >= 0:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            writer.transport.abort()
