"""A TCP port for a server that cannot choose and report one itself."""

import random
import socket

_RANGE = range(20_000, 32_000)  # below the range that the kernel uses for outgoing connections


def unused_port() -> int:
    """A port on which no process listens. Another process is unlikely to take it before it is used."""
    while True:
        port = random.SystemRandom().choice(_RANGE)  # not `random`, whose seed is the same in every test process
        with socket.socket() as listener:
            try:
                listener.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
