"""HTTP: read a request, apply injected faults, call its handler, log it, send the reply. Knows none of the routes."""

import asyncio
import json
import re
import threading
import traceback
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, unquote

from tornado.httpserver import HTTPServer
from tornado.httputil import HTTPHeaders
from tornado.netutil import bind_sockets
from tornado.web import Application, RequestHandler

from hubserver.access import ANONYMOUS, UNKNOWN, Grant, Tokens
from hubserver.errors import HubError, invalid_token
from hubserver.traffic import Request, WireFault, WireFaults

MOST_BYTES = 1 << 30  # of a request


@dataclass(frozen=True, kw_only=True)
class Reply:
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""


def json_reply(value: Any, *, status: int = 200, headers: Mapping[str, str] | None = None) -> Reply:
    content_type = {"Content-Type": "application/json; charset=utf-8"}
    return Reply(status=status, headers={**content_type, **(headers or {})}, body=json.dumps(value).encode())


def error_reply(error: HubError) -> Reply:
    headers = {"X-Error-Message": error.message.encode("ascii", "replace").decode()}
    if error.code:
        headers["X-Error-Code"] = error.code
    return json_reply({"error": error.message}, status=error.status, headers=headers)


@dataclass(frozen=True, kw_only=True)
class Call:
    method: str
    path: str  # as sent, with percent-encoding
    query: Mapping[str, str]
    headers: HTTPHeaders
    body: bytes
    grant: Grant

    def json(self) -> Any:
        return json.loads(self.body)


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
    """Calls the handler of a request. Decodes percent-encoded template parameters, in which `%2F` stands for a slash."""

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


class WireServer:
    """Serves on loopback from one thread, so that two handlers never run at the same time."""

    def __init__(self, *, tokens: Tokens, faults: WireFaults) -> None:
        self.tokens, self.faults = tokens, faults
        self.log: list[Request] = []
        self.handler_errors: list[str] = []
        self._sockets = bind_sockets(0, "127.0.0.1")
        self.port = self._sockets[0].getsockname()[1]
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def open(self, router: Router) -> None:
        self._router = router
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._open(), self._loop).result()

    def close(self) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def reply(self, call: Call, fault: WireFault | None) -> Reply:
        if fault is not None and fault.answers:
            return Reply(status=fault.status or 0, headers=fault.headers, body=fault.answer_body())
        try:
            if call.grant is UNKNOWN:
                raise invalid_token()
            return self._router.reply(call)
        except HubError as error:
            return error_reply(error)
        except Exception:
            self.handler_errors.append(traceback.format_exc())
            return error_reply(HubError(500, "The test Hub failed; see handler_errors"))

    async def _open(self) -> None:
        routes = [("(.*)", WireHandler, {"wire": self})]
        self._server = HTTPServer(Application(routes, log_function=print_nothing), max_buffer_size=MOST_BYTES)
        self._server.add_sockets(self._sockets)

    async def _close(self) -> None:
        self._server.stop()
        await self._server.close_all_connections()


class WireHandler(RequestHandler):
    def initialize(self, wire: WireServer) -> None:
        self.wire = wire

    async def answer(self, _: str) -> None:
        fault = self.wire.faults.take(self.request.method, self.request.path)
        if fault is not None:
            await asyncio.sleep(fault.delay_seconds)
        call = self._call()
        reply = self.wire.reply(call, fault)
        if fault is not None and (fault.drop or fault.drop_after):
            self._note(call, status=0)
            self.request.connection.stream.close()
        else:
            self._note(call, status=reply.status)  # before the reply, so that a client finds its request there
            self._send(reply)

    get = head = post = put = delete = answer

    def _call(self) -> Call:
        query = dict(parse_qsl(self.request.query, keep_blank_values=True))
        secret = self.request.headers.get("Authorization", "").removeprefix("Bearer ") or query.get("ticket")
        return Call(
            method=self.request.method,
            path=self.request.path,
            query=query,
            headers=self.request.headers,
            body=self.request.body,
            grant=self.wire.tokens.grant_of(secret) if secret else ANONYMOUS,
        )

    def _note(self, call: Call, *, status: int) -> None:
        about = {"method": call.method, "path": call.path, "token_name": call.grant.name}
        self.wire.log.append(Request(**about, status=status, bytes_in=len(call.body)))

    def _send(self, reply: Reply) -> None:
        self.set_status(reply.status)
        for name, value in reply.headers.items():
            self.set_header(name, value)
        self.finish(reply.body)

    def compute_etag(self) -> None:
        """Send no ETag except those that handlers set."""


def print_nothing(_: RequestHandler) -> None:
    """Log nothing, because requests are in the request log."""
