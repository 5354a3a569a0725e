"""TLS in front of a Redis that speaks none, with a certificate of its own authority."""

import socket
import socketserver
import ssl
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from shutil import which

import pytest

_CHUNK_BYTES = 1 << 16


@dataclass(frozen=True, kw_only=True)
class TlsFront:
    """`port` on localhost speaks TLS. `authority` is the file with the certificate that a client must trust."""

    port: int
    authority: Path


@contextmanager
def tls_front(path: Path, folder: Path) -> Iterator[TlsFront]:
    """Pass what arrives by TLS on to the unix socket at `path`. Skips the test if no `openssl` can make a certificate."""
    authority, key = _certificate(folder)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(authority, key)
    with _Server(context, path) as server:
        thread = threading.Thread(target=server.serve_forever, name="tls")
        thread.start()
        try:
            yield TlsFront(port=server.server_address[1], authority=authority)
        finally:
            server.shutdown()
            thread.join()
            server.cut()


class _Server(socketserver.ThreadingTCPServer):
    """Each connection has a thread, which ends with it. Closing the server waits for all of them."""

    def __init__(self, context: ssl.SSLContext, path: Path) -> None:
        super().__init__(("127.0.0.1", 0), _Connection)
        self.context = context
        self.path = str(path)
        self.open: set[socket.socket] = set()

    def cut(self) -> None:
        for end in list(self.open):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def handle_error(self, *_: object) -> None:
        """A client that ends or does not trust the certificate is no error of the test."""


class _Connection(socketserver.BaseRequestHandler):
    server: _Server

    def handle(self) -> None:
        with (
            self.server.context.wrap_socket(self.request, server_side=True) as client,
            socket.socket(socket.AF_UNIX) as redis,
        ):
            redis.connect(self.server.path)
            ends = {client, redis}
            self.server.open |= ends
            back = threading.Thread(target=_pump, args=(redis, client))
            back.start()
            _pump(client, redis)
            back.join()
            self.server.open -= ends


def _pump(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(_CHUNK_BYTES):
            target.sendall(data)
    for end in (source, target):
        with suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)


def _certificate(folder: Path) -> tuple[Path, Path]:
    openssl = which("openssl")
    if openssl is None:
        pytest.skip("no openssl to make a certificate")
    certificate, key = folder / "authority.pem", folder / "key.pem"
    subprocess.run(
        [openssl, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
        + ["-addext", "subjectAltName=DNS:localhost", "-keyout", str(key), "-out", str(certificate)],
        check=True,
        capture_output=True,
    )
    return certificate, key
