"""A TCP proxy on loopback in front of Redis, with TLS on request. It can cut, silence and slow down connections.

Knows nothing of the Redis protocol. All proxies of a `Network` share one thread.
"""

import asyncio
import socket
import struct
import threading
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from ssl import SSLContext
from typing import Any, Self, TypeVar

_CHUNK_BYTES = 1 << 16
_RESET = struct.pack("ii", 1, 0)  # SO_LINGER: close with RST, like a machine or a NAT that forgot the connection
T = TypeVar("T")


class Network:
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

    def proxy_to(self, upstream: Path, *, tls: SSLContext | None = None) -> "Proxy":
        proxy = Proxy(self, upstream, tls)
        self.call(proxy.open())
        self._proxies.append(proxy)
        return proxy

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def _end(self) -> None:
        for proxy in self._proxies:
            await proxy.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        await asyncio.sleep(0)  # lets the transports close their sockets


class Proxy:
    """Listens on `port` of 127.0.0.1. Its public methods may be called from any thread."""

    def __init__(self, network: Network, upstream: Path, tls: SSLContext | None) -> None:
        self._network = network
        self._upstream = upstream
        self._tls = tls
        self._writers: dict[asyncio.StreamWriter, asyncio.StreamWriter | None] = {}  # client → server
        self._silenced: set[asyncio.StreamWriter] = set()  # clients whose bytes were dropped
        self._is_silent = False
        self._delay_seconds = 0.0
        self._requests_left: int | None = None
        self.port = 0

    def cut(self) -> int:
        """Reset all connections; new ones are accepted. Returns how many were reset."""
        return self._network.call(self._cut(list(self._writers)))

    def go_silent(self) -> None:
        """Drop all bytes without closing a connection, so that connections are half open."""
        self._silenced |= set(self._writers)
        self._is_silent = True

    def speak(self) -> None:
        """Carry the bytes of new connections again. Silenced connections stay silent."""
        self._is_silent = False

    @contextmanager
    def silent(self) -> Iterator[None]:
        self.go_silent()
        try:
            yield
        finally:
            self.speak()

    def delay(self, seconds: float) -> None:
        """Deliver all bytes, in both directions, this many seconds later."""
        self._delay_seconds = seconds

    def heal(self) -> None:
        """Work normally again. Resets the connections that lost bytes."""
        self.speak()
        self._delay_seconds = 0.0
        self._network.call(self._cut(list(self._silenced)))

    @contextmanager
    def going_away(self, *, after: int) -> Iterator[None]:
        """Let `after` more requests pass. Then reset all connections, and each new connection at its first request."""
        self._requests_left = after
        try:
            yield
        finally:
            self._requests_left = None

    async def open(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self._tls)
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        self._server.close()
        await self._cut(list(self._writers))

    async def _cut(self, clients: list[asyncio.StreamWriter]) -> int:
        for client in clients:
            self._close(client)
        return len(clients)

    async def _serve(self, reader: asyncio.StreamReader, client: asyncio.StreamWriter) -> None:
        self._writers[client] = None
        if self._is_silent:
            self._silenced.add(client)
        with suppress(OSError, asyncio.CancelledError):  # Redis is down; or the network ends, which asyncio would log
            server_reader, server = await asyncio.open_unix_connection(str(self._upstream))
            self._writers[client] = server
            await asyncio.gather(
                self._carry(reader, server, client=client), self._carry(server_reader, client, client=client)
            )
        self._close(client)

    async def _carry(
        self, source: asyncio.StreamReader, target: asyncio.StreamWriter, *, client: asyncio.StreamWriter
    ) -> None:
        with suppress(OSError):
            while content := await source.read(_CHUNK_BYTES):
                if target is not client and self._is_gone():
                    await self._cut(list(self._writers))
                    return
                if self._delay_seconds:
                    await asyncio.sleep(self._delay_seconds)
                if client not in self._silenced:
                    target.write(content)
                    await target.drain()
        if client not in self._silenced:  # a half-open connection does not notice that the other side closed
            target.close()

    def _is_gone(self) -> bool:
        if self._requests_left is not None:
            self._requests_left -= 1
        return self._requests_left is not None and self._requests_left < 0

    def _close(self, client: asyncio.StreamWriter) -> None:
        """Reset the connection to the client, and end the connection to the server."""
        server = self._writers.pop(client, None)
        self._silenced.discard(client)
        connection = client.get_extra_info("socket")
        if connection and connection.fileno() >= 0:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        for writer in (client, server):
            if writer:
                writer.transport.abort()


@contextmanager
def proxied(upstream: Path, *, tls: SSLContext | None = None) -> Iterator[tuple[Proxy, str]]:
    """Run a proxy to the Redis at this socket. Yields the proxy and its address, host:port."""
    with Network() as network:
        proxy = network.proxy_to(upstream, tls=tls)
        yield proxy, f"127.0.0.1:{proxy.port}"
