"""HTTP: read a request, apply injected faults, call its handler, log it, send the reply. Knows none of the routes."""

import json
import re
import socket
import sys
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BufferedIOBase
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, parse_qs, unquote, urlsplit

from hubserver.access import ANONYMOUS, Grant, Tokens
from hubserver.blobs import CHUNK_BYTES
from hubserver.errors import HubError, bad_request, invalid_token
from hubserver.traffic import Request, WireFault, WireFaults


@dataclass(frozen=True, kw_only=True)
class FileSlice:
    """A part of a file as a reply's body. It is sent from disk and never loaded into memory."""

    path: Path
    start: int
    length: int


@dataclass(frozen=True, kw_only=True)
class Reply:
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | FileSlice = b""

    @property
    def body_bytes(self) -> int:
        return self.body.length if isinstance(self.body, FileSlice) else len(self.body)


def json_reply(value: Any, *, status: int = 200, headers: Mapping[str, str] | None = None) -> Reply:
    content_type = {"Content-Type": "application/json; charset=utf-8"}
    return Reply(status=status, headers={**content_type, **(headers or {})}, body=json.dumps(value).encode())


def error_reply(error: HubError) -> Reply:
    headers = {"X-Error-Message": error.message.encode("ascii", "replace").decode()}
    if error.code:
        headers["X-Error-Code"] = error.code
    return json_reply({"error": error.message}, status=error.status, headers=headers)


def file_reply(path: Path, *, range_header: str | None, headers: Mapping[str, str]) -> Reply:
    """Reply with the file or, if there is a Range header, with that range of it."""
    size = path.stat().st_size
    headers = {"Accept-Ranges": "bytes", "Content-Type": "application/octet-stream", **headers}
    if not range_header:
        return Reply(headers=headers, body=FileSlice(path=path, start=0, length=size))
    wanted = byte_range(range_header, size)
    if wanted is None:
        return Reply(status=416, headers={**headers, "Content-Range": f"bytes */{size}"})
    headers["Content-Range"] = f"bytes {wanted.start}-{wanted.stop - 1}/{size}"
    return Reply(status=206, headers=headers, body=FileSlice(path=path, start=wanted.start, length=len(wanted)))


def byte_range(header: str, size: int) -> range | None:
    """The bytes that a Range header selects, limited to the size. None if the file has none of them."""
    match = re.fullmatch(r"bytes=(\d*)-(\d*)", header.strip())
    if not match or not any(match.groups()):
        raise bad_request(f"Unsupported range: {header}")
    first, last = match.groups()
    start = int(first) if first else max(size - int(last), 0)
    stop = min(int(last) + 1, size) if first and last else size
    return range(start, stop) or None


class ClientGoneError(Exception):
    """The connection ended in the middle of a request."""


class Body:
    """A request's body. It can be read once, in chunks or whole. Supports Content-Length and chunked encoding."""

    def __init__(self, stream: BufferedIOBase, headers: Message) -> None:
        self._stream = stream
        self.bytes_read = 0
        if "chunked" in headers.get("Transfer-Encoding", "").lower():
            self._chunks = self._read_chunked()
        else:
            self._chunks = self._read_bytes(int(headers.get("Content-Length", 0)))

    def chunks(self) -> Iterator[bytes]:
        return self._chunks

    def read(self) -> bytes:
        return b"".join(self._chunks)

    def json(self) -> Any:
        try:
            return json.loads(self.read())
        except ValueError as error:
            raise bad_request(f"The body is not JSON: {error}") from error

    def drain(self) -> None:
        """Read what the handler has not read, so that the connection can be used for another request."""
        for _ in self._chunks:
            pass

    def _read_chunked(self) -> Iterator[bytes]:
        while size := int(self._read_line().split(b";")[0], 16):
            yield from self._read_bytes(size)
            self._read_line()
        while self._read_line().strip():
            pass  # trailers

    def _read_line(self) -> bytes:
        if line := self._stream.readline():
            return line
        raise ClientGoneError

    def _read_bytes(self, count: int) -> Iterator[bytes]:
        while count:
            chunk = self._stream.read(min(count, CHUNK_BYTES))
            if not chunk:
                raise ClientGoneError
            count -= len(chunk)
            self.bytes_read += len(chunk)
            yield chunk


@dataclass(frozen=True, kw_only=True)
class Call:
    """A request, as a handler receives it."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Message
    body: Body
    grant: Grant


Handler = Callable[..., Reply]
Route = tuple[str, str, Handler]  # method, template, handler(call, **template parameters)

TEMPLATE_PARTS = {
    "types": "models|datasets",
    "prefix": "(?:datasets/)?",
    "repo_id": "[^/]+/[^/]+",
    "path": ".+",
    "sha256": "[0-9a-f]{64}",
    "xorb": "[0-9a-f]{64}",
}


class Router:
    """Calls the handler of a request. Template parameters are percent-decoded. A slash in one is sent as `%2F`."""

    def __init__(self, routes: Iterable[Route]) -> None:
        self._routes = [(method, template_pattern(template), handler) for method, template, handler in routes]

    def reply(self, call: Call) -> Reply:
        for method, pattern, handler in self._routes:
            if method == call.method and (match := pattern.fullmatch(call.path)):
                return handler(call, **{name: unquote(text) for name, text in match.groupdict().items()})
        raise HubError(404, f"Sorry, we can't find the page you are looking for: {call.method} {call.path}")


def template_pattern(template: str) -> re.Pattern[str]:
    def group(match: re.Match[str]) -> str:
        return f"(?P<{match[1]}>{TEMPLATE_PARTS.get(match[1], '[^/]+')})"

    return re.compile(re.sub(r"\{(\w+)\}", group, template))


class WireServer(ThreadingHTTPServer):
    """A thread per connection, on loopback. `close` also closes the open connections and joins their threads."""

    request_queue_size = 128

    def __init__(self, port: int, *, router: Router, tokens: Tokens, log: list[Request], faults: WireFaults) -> None:
        super().__init__(("127.0.0.1", port), WireHandler)
        self.router, self.tokens, self.log, self.faults = router, tokens, log, faults
        self.handler_errors: list[str] = []
        self.stopping = threading.Event()
        self._serving: dict[threading.Thread, socket.socket] = {}
        self._accepting = threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)

    def open(self) -> None:
        self._accepting.start()

    def close(self) -> None:
        self.stopping.set()
        self.shutdown()
        self._accepting.join()
        self.server_close()
        for thread, connection in list(self._serving.items()):
            hang_up(connection)
            thread.join()

    def process_request(self, request: Any, client_address: Any) -> None:
        serve = threading.Thread(target=self.process_request_thread, args=(request, client_address), daemon=True)
        self._serving[serve] = request
        serve.start()

    def shutdown_request(self, request: Any) -> None:
        super().shutdown_request(request)
        self._serving.pop(threading.current_thread(), None)

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exception(), ConnectionError):
            self.record_error()

    def record_error(self) -> None:
        self.handler_errors.append(traceback.format_exc())


class WireHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: WireServer

    def handle_call(self) -> None:
        url, body = urlsplit(self.path), Body(self.rfile, self.headers)
        grant = self._grant(url)
        fault = self.server.faults.take(self.command, url.path)
        try:
            reply = self._reply(url, body, grant, fault)
            body.drain()
        except (ClientGoneError, ConnectionError):
            self._log(url, body, grant, None)
            self._hang_up()
            return
        lost = fault is not None and (fault.drop or fault.drop_after)
        self._log(url, body, grant, None if lost else reply)
        if lost:
            self._hang_up()
        else:
            self._send(reply)

    do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = do_PATCH = handle_call

    def _grant(self, url: SplitResult) -> Grant | None:
        """The grant of the token or ticket in the request. None if it was never issued."""
        secret = self.headers.get("Authorization", "").removeprefix("Bearer ") or query_of(url).get("ticket")
        return self.server.tokens.grant_of(secret) if secret else ANONYMOUS

    def _reply(self, url: SplitResult, body: Body, grant: Grant | None, fault: WireFault | None) -> Reply:
        if fault is not None:
            self.server.stopping.wait(fault.delay_seconds)
            if fault.answers:
                return Reply(status=fault.status or 0, headers=fault.headers, body=fault.answer_body())
        try:
            if grant is None:
                raise invalid_token()
            return self.server.router.reply(self._call(url, body, grant))
        except HubError as error:
            return error_reply(error)
        except (ClientGoneError, ConnectionError):
            raise
        except Exception:
            self.server.record_error()
            return error_reply(HubError(500, "The test Hub failed; see handler_errors"))

    def _call(self, url: SplitResult, body: Body, grant: Grant) -> Call:
        return Call(
            method=self.command, path=url.path, query=query_of(url), headers=self.headers, body=body, grant=grant
        )

    def _log(self, url: SplitResult, body: Body, grant: Grant | None, reply: Reply | None) -> None:
        """Log before the reply is sent, so that a client that has the reply finds its request in the log."""
        self.server.log.append(
            Request(
                method=self.command,
                path=url.path,
                token_name=grant.name if grant else None,
                status=reply.status if reply else 0,
                bytes_in=body.bytes_read,
            )
        )

    def _send(self, reply: Reply) -> None:
        self.send_response(reply.status)
        for name, value in reply.headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(reply.body_bytes))
        self.end_headers()
        if self.command == "HEAD":
            return
        if isinstance(reply.body, bytes):
            self.wfile.write(reply.body)
        elif reply.body.length:
            with reply.body.path.open("rb") as file:
                self.connection.sendfile(file, reply.body.start, reply.body.length)

    def _hang_up(self) -> None:
        self.close_connection = True
        hang_up(self.connection)

    def log_message(self, format: str, *args: Any) -> None:
        """Print nothing: requests are in the request log."""


def hang_up(connection: socket.socket) -> None:
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


def query_of(url: SplitResult) -> dict[str, str]:
    return {name: values[-1] for name, values in parse_qs(url.query, keep_blank_values=True).items()}
