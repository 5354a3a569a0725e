"""A TCP port for a server that cannot choose one itself and say which."""

import random
import socket

_RANGE = range(20_000, 32_000)  # below those that the kernel gives to outgoing connections, which come and go meanwhile


def unused_port() -> int:
    """Nobody listens there, and it is unlikely that anybody will by the time that it is used."""
    while True:
        port = random.SystemRandom().choice(_RANGE)  # not the tests' own, whose seed is the same in every process
        with socket.socket() as listener:
            try:
                listener.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
