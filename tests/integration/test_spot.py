"""Spot notices, from local metadata services that check requests as strictly as those of the clouds."""

import json
import logging
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from fleet.settings import Settings
from support.processes import call_command
from support.waiting import wait_until
from worker.service.spot.notice import Notice
from worker.service.spot.watch import SpotWatch, start_watching, watch_for_notice

POLL_SECONDS = 0.02


@dataclass(frozen=True)
class Reply:
    status: int = 200
    body: str = ""
    headers: dict[str, str] = field(default_factory=dict)


Fault = Callable[["Handler"], None]


class Service(ThreadingHTTPServer):
    """A metadata service. `asked` records the method and path of each request. A fault replaces every answer."""

    daemon_threads = True

    def __init__(self, port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), Handler)
        self.asked: list[tuple[str, str]] = []
        self.fault: Fault | None = None
        self.closing = threading.Event()

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
        if self.server.fault:
            return self.server.fault(self)
        headers = {name.lower(): value for name, value in self.headers.items()}
        return self.answer(self.server.reply(self.command, self.path, headers))

    do_PUT = do_GET

    def answer(self, reply: Reply) -> None:
        self.send_response(reply.status)
        for name, value in reply.headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.write(reply.body.encode())

    def write(self, part: bytes) -> bool:
        """Whether the client still listens."""
        try:
            self.wfile.write(part)
        except OSError:
            return False
        return True

    def log_message(self, *_: object) -> None:
        pass


class AwsService(Service):
    """Accepts every token until it is revoked. `token_seconds` is the lifetime that the service reports."""

    notice: str | None = None
    token_seconds: str = "21600"
    tokens = 0
    revoked = 0

    def reply(self, method: str, path: str, headers: dict[str, str]) -> Reply:
        if (method, path) == ("PUT", "/latest/api/token") and "x-aws-ec2-metadata-token-ttl-seconds" in headers:
            self.tokens += 1
            body = f"token {self.tokens}"
            return Reply(body=body, headers={"X-aws-ec2-metadata-token-ttl-seconds": self.token_seconds})
        valid = [f"token {number}" for number in range(self.revoked + 1, self.tokens + 1)]
        if headers.get("x-aws-ec2-metadata-token") not in valid:
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
        if path == "/computeMetadata/v1/instance/maintenance-event":
            return Reply(body="TERMINATE_ON_HOST_MAINTENANCE")
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


@contextmanager
def serving(cloud: str, port: int = 0) -> Iterator[Service]:
    service = SERVICES[cloud](port)
    thread = threading.Thread(target=service.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield service
    finally:
        service.closing.set()
        service.shutdown()
        service.server_close()
        thread.join()


@pytest.fixture(params=SERVICES)
def cloud(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def service(cloud: str) -> Iterator[Service]:
    with serving(cloud) as service:
        yield service


@pytest.fixture
def aws() -> Iterator[Service]:
    with serving("aws") as service:
        yield service


@pytest.fixture
def gcp() -> Iterator[Service]:
    with serving("gcp") as service:
        yield service


@pytest.fixture
def azure() -> Iterator[Service]:
    with serving("azure") as service:
        yield service


@dataclass
class Watched:
    watch: SpotWatch
    notices: list[Notice]

    def notice(self) -> Notice:
        return wait_until(lambda: self.notices, description="the notice is seen", seconds=20)[0]

    def has_ended(self) -> bool:
        return wait_until(lambda: not self.watch.is_running, description="the watch has ended", seconds=20)


@contextmanager
def watching(cloud: str, address: str) -> Iterator[Watched]:
    notices: list[Notice] = []
    watch = watch_for_notice(cloud, address=address, on_notice=notices.append, poll_seconds=POLL_SECONDS)
    watched = Watched(watch, notices)
    try:
        yield watched
    finally:
        watch.stop()
        watched.has_ended()


def polled(service: Service, times: int = 3) -> int:
    """Wait until this many further requests have begun."""
    before = len(service.asked)
    return wait_until(lambda: len(service.asked) >= before + times, description="further polls", seconds=20)


def in_seconds(seconds: float) -> datetime:
    return datetime.now(UTC) + timedelta(seconds=seconds)


class TestEachCloud:
    def test_a_notice_is_seen_after_it_is_given_and_not_before(self, cloud: str, service: Service) -> None:
        with watching(cloud, service.address) as watched:
            polled(service, times=10)
            seen_before = list(watched.notices)

            service.give_notice()
            notice = watched.notice()

        assert seen_before == []
        assert notice.cloud == cloud
        assert notice.action == ("terminate" if cloud == "aws" else "preempt")

    def test_the_promise_of_the_cloud_counts_if_the_notice_has_no_time(self, cloud: str, service: Service) -> None:
        service.give_notice()

        with watching(cloud, service.address) as watched:
            assert watched.notice().seconds_left == {"aws": 120, "gcp": 30, "azure": 30}[cloud]

    def test_a_notice_is_logged_once_in_one_sentence_and_ends_the_watch(
        self, cloud: str, service: Service, caplog: pytest.LogCaptureFixture
    ) -> None:
        service.give_notice()

        with watching(cloud, service.address) as watched:
            watched.has_ended()

        assert len(watched.notices) == 1
        assert [record.levelno for record in caplog.records] == [logging.WARNING]
        assert "The cloud reclaims this machine in" in caplog.text

    def test_no_event_is_acknowledged_and_nothing_else_is_changed(self, cloud: str, service: Service) -> None:
        service.give_notice()

        with watching(cloud, service.address) as watched:
            watched.notice()

        assert {(method, path) for method, path in service.asked if method != "GET"} <= {("PUT", "/latest/api/token")}


class TestAws:
    @pytest.mark.parametrize("action", ["terminate", "stop", "hibernate"])
    def test_action_and_time_are_those_of_the_notice(self, aws: AwsService, action: str) -> None:
        aws.give_notice(action=action, time=in_seconds(90).strftime("%Y-%m-%dT%H:%M:%SZ"))

        with watching("aws", aws.address) as watched:
            notice = watched.notice()

        assert notice.action == action
        assert notice.seconds_left == pytest.approx(90, abs=10)

    def test_a_time_that_has_passed_leaves_nothing(self, aws: AwsService) -> None:
        aws.give_notice(time="2017-09-18T08:22:00Z")

        with watching("aws", aws.address) as watched:
            assert watched.notice().seconds_left == 0

    @pytest.mark.parametrize("time", ["soon", "2017-09-18T08:22:00", ""])
    def test_a_time_that_cannot_be_read_hides_no_notice(self, aws: AwsService, time: str) -> None:
        aws.give_notice(time=time)

        with watching("aws", aws.address) as watched:
            assert watched.notice().seconds_left == 120

    def test_one_token_serves_many_polls(self, aws: AwsService) -> None:
        with watching("aws", aws.address):
            polled(aws, times=10)

        assert aws.tokens == 1

    def test_a_token_is_renewed_before_its_end(self, aws: AwsService, caplog: pytest.LogCaptureFixture) -> None:
        aws.token_seconds = "30"  # less than the minute before expiry

        with watching("aws", aws.address):
            wait_until(lambda: aws.tokens >= 3, description="new tokens")

        assert caplog.messages == []

    def test_a_token_that_is_refused_is_renewed_and_the_notice_still_seen(
        self, aws: AwsService, caplog: pytest.LogCaptureFixture
    ) -> None:
        with watching("aws", aws.address) as watched:
            polled(aws)
            aws.revoked = aws.tokens
            wait_until(lambda: aws.tokens == 2, description="a new token")
            warnings = list(caplog.messages)

            aws.give_notice()
            watched.notice()

        assert warnings == []


class TestGcp:
    def test_maintenance_an_hour_ahead_is_no_notice(self, gcp: GcpService) -> None:
        with watching("gcp", gcp.address) as watched:
            polled(gcp, times=6)

        assert watched.notices == []


class TestAzure:
    @pytest.mark.parametrize("kind", ["Preempt", "Terminate"])
    def test_kind_and_time_are_those_of_the_event(self, azure: AzureService, kind: str) -> None:
        azure.events = [an_event(EventType=kind, NotBefore=format_datetime(in_seconds(25), usegmt=True))]

        with watching("azure", azure.address) as watched:
            notice = watched.notice()

        assert notice.action == kind.lower()
        assert notice.seconds_left == pytest.approx(25, abs=10)

    def test_an_event_that_has_started_leaves_no_time(self, azure: AzureService) -> None:
        azure.events = [an_event(EventStatus="Started")]

        with watching("azure", azure.address) as watched:
            assert watched.notice().seconds_left == 0

    @pytest.mark.parametrize(
        "event", [an_event(Resources=["gpu_70", "gpu"]), an_event(EventType="Freeze"), an_event(EventType="Reboot")]
    )
    def test_another_machines_events_and_pauses_are_ignored(
        self, azure: AzureService, event: dict[str, object]
    ) -> None:
        azure.events = [event]

        with watching("azure", azure.address) as watched:
            polled(azure, times=6)
            seen_before = list(watched.notices)
            azure.events = [event, an_event(Resources=["gpu_6", "GPU_7"])]
            watched.notice()

        assert seen_before == []


def fails(handler: Handler) -> None:
    handler.answer(Reply(500, "out of order"))


def speaks_garbage(handler: Handler) -> None:
    handler.answer(Reply(body='<html lang="en">Please log in.</html>'))


def answers_json_of_another_shape(handler: Handler) -> None:
    handler.answer(Reply(body='["TRUE"]'))


def hangs_up(handler: Handler) -> None:
    handler.close_connection = True


def redirects(handler: Handler) -> None:
    handler.answer(Reply(307, headers={"Location": f"{handler.server.address}/elsewhere"}))


def never_ends(handler: Handler) -> None:
    handler.send_response(200)
    handler.end_headers()
    while handler.write(b"x" * 4096):
        pass


def says_nothing(handler: Handler) -> None:
    handler.server.closing.wait(60)


def drips(handler: Handler) -> None:
    """Each part of the answer comes in time, but the answer never ends."""
    handler.send_response(200)
    handler.end_headers()
    while handler.write(b"x") and not handler.server.closing.wait(0.1):
        pass


class TestBrokenService:
    @pytest.mark.parametrize(
        "fault", [fails, speaks_garbage, answers_json_of_another_shape, hangs_up, redirects, never_ends]
    )
    def test_a_fault_costs_one_warning_and_a_later_notice_is_seen(
        self, cloud: str, service: Service, fault: Fault, caplog: pytest.LogCaptureFixture
    ) -> None:
        service.fault = fault

        with watching(cloud, service.address) as watched:
            polled(service, times=6)
            warnings = list(caplog.messages)
            service.fault = None
            service.give_notice()
            watched.notice()

        assert len(warnings) == 1
        assert f"The metadata service of {cloud} fails; polling continues" in warnings[0]
        assert ("GET", "/elsewhere") not in service.asked

    @pytest.mark.parametrize("fault", [says_nothing, drips])
    def test_a_slow_answer_is_given_up_after_two_seconds_and_a_later_notice_is_seen(
        self, gcp: GcpService, fault: Fault, caplog: pytest.LogCaptureFixture
    ) -> None:
        gcp.fault = fault

        with watching("gcp", gcp.address) as watched:
            wait_until(lambda: caplog.messages, description="a warning", seconds=20)
            gcp.fault = None
            gcp.give_notice()
            watched.notice()

    def test_a_missing_service_is_waited_for(self, caplog: pytest.LogCaptureFixture) -> None:
        with serving("gcp") as gone:
            port, address = gone.server_port, gone.address

        with watching("gcp", address) as watched:
            wait_until(lambda: "refused" in caplog.text, description="a warning")
            with serving("gcp", port) as service:
                service.give_notice()
                watched.notice()

    def test_a_wrong_address_is_logged_and_does_not_end_the_watch(self, caplog: pytest.LogCaptureFixture) -> None:
        with watching("gcp", "http://[nowhere") as watched:
            wait_until(lambda: caplog.messages, description="a warning")

            assert watched.watch.is_running

    def test_a_second_outage_is_logged_again(self, gcp: GcpService, caplog: pytest.LogCaptureFixture) -> None:
        with watching("gcp", gcp.address):
            for warnings in (1, 2):
                gcp.fault = fails
                wait_until(lambda expected=warnings: len(caplog.messages) == expected, description="a warning")
                gcp.fault = None
                polled(gcp, times=6)


def test_a_callback_that_fails_is_logged_and_not_called_again(
    gcp: GcpService, caplog: pytest.LogCaptureFixture
) -> None:
    calls: list[Notice] = []

    def fail(notice: Notice) -> None:
        calls.append(notice)
        raise RuntimeError("no child to stop")

    gcp.give_notice()
    watch = watch_for_notice("gcp", address=gcp.address, on_notice=fail, poll_seconds=POLL_SECONDS)
    wait_until(lambda: not watch.is_running, description="the watch has ended")

    assert len(calls) == 1
    assert "no child to stop" in caplog.text


def test_a_watch_that_is_stopped_ends_silently(cloud: str, service: Service) -> None:
    with watching(cloud, service.address) as watched:
        polled(service)
        watched.watch.stop()
        watched.has_ended()
        asked = len(service.asked)
        service.give_notice()

    assert watched.notices == []
    assert len(service.asked) == asked


def test_a_notice_that_comes_after_the_stop_is_ignored(gcp: GcpService) -> None:
    late = threading.Event()
    gcp.fault = lambda handler: (late.wait(20), handler.answer(Reply(body="TRUE")))[1]

    with watching("gcp", gcp.address) as watched:
        polled(gcp, times=1)
        watched.watch.stop()
        late.set()
        watched.has_ended()

    assert watched.notices == []


def test_a_proxy_of_the_environment_is_not_used(gcp: GcpService, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving("gcp") as proxy:
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, proxy.address)
        for name in ("no_proxy", "NO_PROXY"):
            monkeypatch.delenv(name, raising=False)
        gcp.give_notice()

        with watching("gcp", gcp.address) as watched:
            watched.notice()

    assert proxy.asked == []


class TestSettings:
    def test_the_cloud_of_the_settings_is_watched_at_their_address(self, cloud: str, service: Service) -> None:
        service.give_notice()
        notices: list[Notice] = []

        watch = start_watching(Settings(spot_notice=cloud, spot_notice_address=service.address), notices.append)

        assert watch is not None
        wait_until(lambda: not watch.is_running, description="the watch has ended")
        assert [notice.cloud for notice in notices] == [cloud]

    def test_no_service_is_queried_unless_a_cloud_is_named(self, gcp: GcpService) -> None:
        gcp.give_notice()

        watch = start_watching(Settings(spot_notice=None, spot_notice_address=gcp.address), pytest.fail)

        assert watch is None
        assert [thread for thread in threading.enumerate() if thread.name.startswith("spot notice")] == []
        assert gcp.asked == []

    def test_an_unknown_cloud_is_an_error_of_one_line(self) -> None:
        done = call_command("worker", "start", environment={"SHARDSIFT_SPOT_NOTICE": "oracle"})

        assert done.returncode == 2
        assert done.stderr.startswith("worker: The environment variable SHARDSIFT_SPOT_NOTICE has a wrong value")
        assert len(done.stderr.splitlines()) == 1


def test_the_light_process_of_a_worker_can_import_it() -> None:
    code = (
        "import sys, worker.service.spot.watch; "
        "sys.exit(', '.join(sorted({'torch', 'transformers', 'numpy', 'pyarrow'} & set(sys.modules))) or 0)"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
