"""Poll the cloud's metadata service in a thread, until it reports that this machine is reclaimed."""

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TypeVar

import httpx2
from pydantic import BaseModel, ValidationError
from pydantic.alias_generators import to_pascal

from fleet.errors import TransientError
from fleet.process.settings import Settings

# Query a machine's metadata service over HTTP. Knows no cloud.

_REQUEST_SECONDS = 2.0
_MAX_BYTES = 64 * 1024
Model = TypeVar("Model", bound=BaseModel)


@dataclass(frozen=True, kw_only=True)
class Answer:
    request: str
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def text(self) -> str:
        """The body. Raises TransientError if the status is not 200."""
        if self.status != 200:
            raise self.unexpected()
        return self.body.decode(errors="replace").strip()

    def parsed(self, model: type[Model]) -> Model:
        """The body as a model. Raises TransientError if it does not match."""
        try:
            return model.model_validate_json(self.text)
        except ValidationError as error:
            raise self.unexpected() from error

    def unexpected(self) -> TransientError:
        return TransientError(f"{self.request} was answered {self.status} {self.body[:80]!r}")


class MetadataService:
    """A client of one service. It uses no proxy and follows no redirect, so only the service itself can answer."""

    def __init__(self, address: str) -> None:
        self._address = address.rstrip("/")
        self._client = httpx2.Client(
            timeout=_REQUEST_SECONDS,
            trust_env=False,
            follow_redirects=False,
            limits=httpx2.Limits(
                max_keepalive_connections=0
            ),  # the service may close an idle connection between two polls
        )

    def ask(self, path: str, headers: Mapping[str, str], *, method: str = "GET") -> Answer:
        """Send a request. Raises TransientError or httpx2.HTTPError if no answer of a reasonable size arrives in time."""
        request = f"{method} {self._address}{path}"
        asked = time.monotonic()
        plain = {**headers, "Accept-Encoding": "identity"}  # a compressed answer could expand to any size
        with self._client.stream(method, self._address + path, headers=plain) as response:
            body = b""
            for part in response.iter_raw():
                body += part
                if len(body) > _MAX_BYTES:
                    raise TransientError(f"{request} was answered with more than {_MAX_BYTES} bytes")
                if time.monotonic() - asked > _REQUEST_SECONDS:  # the client's timeout applies to each part only
                    raise TransientError(f"{request} was not answered completely within {_REQUEST_SECONDS:.0f} s")
            return Answer(request=request, status=response.status_code, headers=response.headers, body=body)


# A cloud's notice that it reclaims a spot machine.


@dataclass(frozen=True, kw_only=True)
class Notice:
    """`action` is the cloud's own term in lower case. `seconds_left` is None if the time of the stop is not known."""

    cloud: str
    action: str
    seconds_left: float | None


def seconds_until(time: str | None, parsed: Callable[[str], datetime], *, promised: float) -> float:
    """The seconds until that time, or 0 if it has passed. If it cannot be parsed, the time that the cloud promises."""
    try:
        return max(0.0, (parsed(time or "") - datetime.now(UTC)).total_seconds())
    except (ValueError, TypeError):  # TypeError: the time has no time zone
        return promised


# EC2's spot interruption notice, read from IMDSv2.
#
# https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/spot-instance-termination-notices.html: `instance-action` is
# absent (404) until about two minutes before the machine is stopped or terminated. A hibernation begins at once.
# https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/instance-metadata-v2-how-it-works.html: a token is valid for at most
# six hours. In a container, tokens arrive only if the instance's hop limit is 2.
# https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/instancedata-data-retrieval.html: on 401, request a new token.

_ADDRESS = "http://169.254.169.254"
_TTL = "X-aws-ec2-metadata-token-ttl-seconds"
_TOKEN = "X-aws-ec2-metadata-token"
_TOKEN_SECONDS = 6 * 3600
_RENEW_SECONDS = 60  # before a token expires
_AWS_SECONDS = 120.0


class _InstanceAction(BaseModel):
    action: str
    time: str | None = None


class Aws:
    def __init__(self, address: str | None) -> None:
        self._service = MetadataService(address or _ADDRESS)
        self._token: str | None = None
        self._renew_at = 0.0

    def ask(self) -> Notice | None:
        answer = self._instance_action()
        if answer.status == 401:
            answer = self._instance_action()
        if answer.status == 404:
            return None
        found = answer.parsed(_InstanceAction)
        seconds_left = seconds_until(found.time, datetime.fromisoformat, promised=_AWS_SECONDS)
        return Notice(cloud="aws", action=found.action.lower(), seconds_left=seconds_left)

    def _instance_action(self) -> Answer:
        token, self._token = self._valid_token(), None  # a token that does not work is not used again
        answer = self._service.ask("/latest/meta-data/spot/instance-action", {_TOKEN: token})
        if answer.status in (200, 404):
            self._token = token
        return answer

    def _valid_token(self) -> str:
        if self._token and time.monotonic() < self._renew_at:
            return self._token
        answer = self._service.ask("/latest/api/token", {_TTL: str(_TOKEN_SECONDS)}, method="PUT")
        self._renew_at = time.monotonic() + int(answer.headers.get(_TTL, _TOKEN_SECONDS)) - _RENEW_SECONDS
        return answer.text


# Azure's scheduled events: Preempt for a spot machine, Terminate for a machine of a scale set. We acknowledge none.
#
# https://learn.microsoft.com/azure/virtual-machines/linux/scheduled-events: every machine of a scale set sees the events of
# all, so `Resources` must name this machine. NotBefore is empty after the event has started. A Preempt comes at most 30 s in
# advance. The first request turns the events on; this may take two minutes, during which requests time out.
# https://learn.microsoft.com/azure/virtual-machines/instance-metadata-service: the name of this machine.

_EVENTS = "/metadata/scheduledevents?api-version=2020-07-01"
_NAME = "/metadata/instance/compute/name?api-version=2021-02-01&format=text"
_AZURE_SECONDS = 30.0


class _Event(BaseModel, alias_generator=to_pascal):
    event_type: str
    event_status: str
    resources: list[str]
    not_before: str | None = None


class _Document(BaseModel, alias_generator=to_pascal):
    events: list[_Event]


class Azure:
    def __init__(self, address: str | None) -> None:
        self._service = MetadataService(address or _ADDRESS)

    def ask(self) -> Notice | None:
        for event in self._get(_EVENTS).parsed(_Document).events:
            if event.event_type in ("Preempt", "Terminate") and self._is_ours(event):
                return Notice(cloud="azure", action=event.event_type.lower(), seconds_left=_seconds_left(event))
        return None

    def _is_ours(self, event: _Event) -> bool:
        return self._get(_NAME).text.lower() in map(str.lower, event.resources)

    def _get(self, path: str) -> Answer:
        return self._service.ask(path, {"Metadata": "true"})


def _seconds_left(event: _Event) -> float:
    if event.event_status == "Started":
        return 0.0
    return seconds_until(event.not_before, parsedate_to_datetime, promised=_AZURE_SECONDS)


# Compute Engine's notice of preemption.
#
# https://cloud.google.com/compute/docs/instances/create-use-spot: `preempted` changes from FALSE to TRUE.
# https://cloud.google.com/compute/docs/instances/spot: the machine stops at most 30 s later.
# `maintenance-event` is not used: it changes up to an hour before the machine stops, and that stop sends a SIGTERM anyway.

_GCP_ADDRESS = "http://metadata.google.internal"
_GCP_SECONDS = 30.0


class Gcp:
    def __init__(self, address: str | None) -> None:
        self._service = MetadataService(address or _GCP_ADDRESS)

    def ask(self) -> Notice | None:
        answer = self._get("preempted")
        if answer.text not in ("TRUE", "FALSE"):
            raise answer.unexpected()
        if answer.text == "FALSE":
            return None
        return Notice(cloud="gcp", action="preempt", seconds_left=_GCP_SECONDS)

    def _get(self, key: str) -> Answer:
        return self._service.ask(f"/computeMetadata/v1/instance/{key}", {"Metadata-Flavor": "Google"})


_CLOUDS: dict[str, type[Aws] | type[Gcp] | type[Azure]] = {"aws": Aws, "gcp": Gcp, "azure": Azure}
logger = logging.getLogger(__name__)


def start_watching(settings: Settings, on_notice: Callable[[Notice], None]) -> "SpotWatch | None":
    """Start the watch that the settings ask for, if any. `on_notice` is called at most once, in another thread."""
    if settings.spot_notice is None:
        return None
    return watch_for_notice(settings.spot_notice, address=settings.spot_notice_address, on_notice=on_notice)


def watch_for_notice(
    cloud: str, *, address: str | None, on_notice: Callable[[Notice], None], poll_seconds: float = 2.0
) -> "SpotWatch":
    """Start a watch of `aws`, `gcp` or `azure`. The default address is the cloud's own."""
    return SpotWatch(_CLOUDS[cloud](address), cloud, on_notice, poll_seconds)


class SpotWatch:
    """A daemon thread that runs until the first notice or `stop()`. Failures of the service do not end it."""

    def __init__(
        self, service: Aws | Gcp | Azure, cloud: str, on_notice: Callable[[Notice], None], poll_seconds: float
    ) -> None:
        self._service = service
        self._cloud = cloud
        self._on_notice = on_notice
        self._poll_seconds = poll_seconds
        self._is_failing = False
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._watch, name=f"spot notice of {cloud}", daemon=True)
        self._thread.start()

    @property
    def is_running(self) -> bool:
        return self._thread.is_alive()

    def stop(self) -> None:
        """Stop without waiting. `on_notice` is not called after this, even if a request still runs for seconds."""
        self._stopped.set()

    def _watch(self) -> None:
        while not self._stopped.is_set():
            if (notice := self._ask()) and not self._stopped.is_set():
                self._tell(notice)
                return
            self._stopped.wait(self._poll_seconds)

    def _ask(self) -> Notice | None:
        try:
            notice = self._service.ask()
        except Exception as error:  # no answer of the service may end the thread, or it would miss the notice
            if not self._is_failing:
                reason = " ".join(str(error).split())[:300] or type(error).__name__
                logger.warning("The metadata service of %s fails; polling continues (%s)", self._cloud, reason)
            self._is_failing = True
            return None
        self._is_failing = False
        return notice

    def _tell(self, notice: Notice) -> None:
        left = "soon" if notice.seconds_left is None else f"in {notice.seconds_left:.0f} s"
        logger.warning("The cloud reclaims this machine %s (%s: %s)", left, notice.cloud, notice.action)
        try:
            self._on_notice(notice)
        except Exception:
            logger.exception("The worker failed to act on the spot notice")
