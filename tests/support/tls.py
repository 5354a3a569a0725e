"""A Redis behind TLS, with a certificate of its own authority."""

import shutil
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from support.proxy import proxied
from support.redis_servers import RedisServer


@dataclass(frozen=True)
class TlsFront:
    """A TLS port on localhost. `authority` is the certificate file of its certificate authority."""

    port: int
    authority: Path

    def url(self, user: tuple[str, str]) -> str:
        name, password = user
        return f"rediss://{name}:{password}@localhost:{self.port}/0?ssl_ca_certs={self.authority}"


@contextmanager
def tls_front(server: RedisServer, folder: Path) -> Iterator[TlsFront]:
    """Run a TLS port in front of the server during the block. Skips the test on a machine without openssl."""
    if shutil.which("openssl") is None:
        pytest.skip("no openssl to make a certificate")
    authority, key = folder / "authority.pem", folder / "key.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
        + ["-addext", "subjectAltName=DNS:localhost", "-keyout", key, "-out", authority],
        check=True,
        capture_output=True,
    )
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(authority, key)
    with proxied(server.socket, tls=context) as (proxy, _):
        yield TlsFront(proxy.port, authority)
