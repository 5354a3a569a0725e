"""Serve the demand as JSON over HTTP, for autoscalers that poll an address, such as KEDA's `metrics-api`.

Read-only and without a password: anyone who reaches it learns the names of models and how many shards are open.
"""

import json
import signal
import socketserver
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler

import redis

from fleet.command_line import say
from fleet.errors import UsageError

_REQUEST_SECONDS = 10.0


class DemandServer(socketserver.ThreadingTCPServer):
    """Answers `GET /` with what `read` returns, as JSON, and with 503 while Redis does not answer."""

    allow_reuse_address = True
    daemon_threads = True

    def __init__(self, address: str, port: int, read: Callable[[], object]) -> None:
        self.read = read
        super().__init__((address, port), _Handler)

    @property
    def url(self) -> str:
        host, port = self.server_address[:2]
        return f"http://{host!s}:{port}/"


def serve_demand(read: Callable[[], object], *, address: str, port: int) -> None:
    """Serve until SIGTERM or Ctrl-C. Raises UsageError if the port is taken."""
    try:
        server = DemandServer(address, port, read)
    except OSError as error:
        raise UsageError(
            f"Cannot listen on {address}:{port}: {error.strerror}. Choose another --serve or --address."
        ) from error
    signal.signal(signal.SIGTERM, _exit)  # as process 1 of a container, it would otherwise ignore the signal
    with server:
        say(f"The demand is served at {server.url}")
        server.serve_forever()


def _exit(_number: int, _frame: object) -> None:
    raise SystemExit(0)


class _Handler(BaseHTTPRequestHandler):
    server: DemandServer
    timeout = _REQUEST_SECONDS

    def do_GET(self) -> None:
        if self.path.partition("?")[0] != "/":
            self._answer(HTTPStatus.NOT_FOUND, {"error": "There is only /"})
            return
        try:
            self._answer(HTTPStatus.OK, self.server.read())
        except redis.RedisError as error:
            self._answer(HTTPStatus.SERVICE_UNAVAILABLE, {"error": f"Redis does not answer: {error}"})

    def _answer(self, status: HTTPStatus, body: object) -> None:
        content = json.dumps(body).encode() + b"\n"
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        """An autoscaler asks twice a minute: no line for each request."""
