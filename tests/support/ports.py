"""A TCP port for a server that cannot choose and report one itself, and servers in this process."""

import random
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from socketserver import BaseServer
from typing import TypeVar

Server = TypeVar("Server", bound=BaseServer)
_RANGE = range(20_000, 32_000)  # below the range that the kernel uses for outgoing connections


def unused_port() -> int:
    """Find a port on which no process listens. Another process is unlikely to take it before it is used."""
    while True:
        port = random.SystemRandom().choice(_RANGE)  # not `random`, whose seed is the same in every test process
        with socket.socket() as listener:
            try:
                listener.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port


@contextmanager
def served_in_background(server: Server) -> Iterator[Server]:
    """Serve from a thread during the block, then close the server."""
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
