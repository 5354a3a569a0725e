"""Metadata services of the clouds on loopback, as strict about requests as the real ones, and watches on them."""

import json
import threading
from contextlib import AbstractContextManager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from shardsift.worker.service.spot import watch_for_notice
from support.ports import served_in_background
from support.waiting import wait_until

POLL_SECONDS = 0.02


@dataclass(frozen=True)
class Reply:
    status: int = 200
    body: str = ""


class Service(ThreadingHTTPServer):
    """A metadata service. `asked` records the method and path of each request.

    While `fails` is set, all requests fail.
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.asked: list[tuple[str, str]] = []
        self.fails = False

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def reply(self, method: str, path: str, headers: dict[str, str]) -> Reply:
        raise NotImplementedError

    def give_notice(self, **about: str) -> None:
        raise NotImplementedError


class Handler(BaseHTTPRequestHandler):
    server: Service

    def do_GET(self) -> None:
        self.server.asked.append((self.command, self.path))
        headers = {name.lower(): value for name, value in self.headers.items()}
        failure = Reply(500, "out of order")
        reply = failure if self.server.fails else self.server.reply(self.command, self.path, headers)
        self.send_response(reply.status)
        self.end_headers()
        self.wfile.write(reply.body.encode())

    do_PUT = do_GET

    def log_message(self, *_: object) -> None:
        pass


class AwsService(Service):
    notice: str | None = None

    def reply(self, method: str, path: str, headers: dict[str, str]) -> Reply:
        if (method, path) == ("PUT", "/latest/api/token") and "x-aws-ec2-metadata-token-ttl-seconds" in headers:
            return Reply(body="a token")
        if headers.get("x-aws-ec2-metadata-token") != "a token":
            return Reply(401)
        if path == "/latest/meta-data/spot/instance-action" and self.notice:
            return Reply(body=self.notice)
        return Reply(404)

    def give_notice(self, **about: str) -> None:
        self.notice = json.dumps({"action": "terminate", **about})


class GcpService(Service):
    preempted = "FALSE"

    def reply(self, method: str, path: str, headers: dict[str, str]) -> Reply:
        if method != "GET" or headers.get("metadata-flavor") != "Google":
            return Reply(403)
        return Reply(body=self.preempted) if path == "/computeMetadata/v1/instance/preempted" else Reply(404)

    def give_notice(self, **about: str) -> None:
        self.preempted = "TRUE"


class AzureService(Service):
    events: list[dict[str, object]] = []

    def reply(self, method: str, path: str, headers: dict[str, str]) -> Reply:
        if method != "GET" or headers.get("metadata") != "true":
            return Reply(400)
        if path == "/metadata/instance/compute/name?api-version=2021-02-01&format=text":
            return Reply(body="gpu_7")
        if path == "/metadata/scheduledevents?api-version=2020-07-01":
            return Reply(body=json.dumps({"DocumentIncarnation": 1, "Events": self.events}))
        return Reply(404)

    def give_notice(self, **about: str) -> None:
        self.events = [an_event(**about)]


def an_event(**about: object) -> dict[str, object]:
    event = {"EventId": "1", "EventType": "Preempt", "ResourceType": "VirtualMachine", "Resources": ["gpu_7"]}
    return {**event, "EventStatus": "Scheduled", "NotBefore": "", "EventSource": "Platform", **about}


SERVICES: dict[str, type[Service]] = {"aws": AwsService, "gcp": GcpService, "azure": AzureService}


def serving(cloud: str) -> AbstractContextManager[Service]:
    return served_in_background(SERVICES[cloud]())


@dataclass
class Watched:
    thread: threading.Thread
    notices: list[float]

    def seconds_left(self) -> float:
        return wait_until(lambda: self.notices, description="the notice is seen", seconds=20)[0]

    def has_ended(self) -> bool:
        return wait_until(lambda: not self.thread.is_alive(), description="the watch has ended", seconds=20)


def watching(cloud: str, address: str) -> Watched:
    """Start a watch, which ends with the first notice."""
    notices: list[float] = []
    about = {"address": address, "on_notice": notices.append, "poll_seconds": POLL_SECONDS}
    thread = threading.Thread(target=watch_for_notice, args=(cloud,), kwargs=about, daemon=True)
    thread.start()
    return Watched(thread, notices)


def polled(service: Service) -> int:
    """Wait until six more requests have begun."""
    before = len(service.asked)
    return wait_until(lambda: len(service.asked) >= before + 6, description="further polls", seconds=20)
