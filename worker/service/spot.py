"""Poll the cloud's metadata service in a thread, until it reports that this machine is reclaimed."""

import json
import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

import httpx2

_LINK_LOCAL = "http://169.254.169.254"
_ADDRESSES = {"aws": _LINK_LOCAL, "azure": _LINK_LOCAL, "gcp": "http://metadata.google.internal"}
_PROMISED_SECONDS = {"aws": 120.0, "azure": 30.0, "gcp": 30.0}  # between the notice and the end of the machine
_REQUEST_SECONDS = 2.0
Ask = Callable[[str, str, Mapping[str, str]], str]  # method, path, headers
logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Notice:
    """`action` is the cloud's own term in lower case."""

    cloud: str
    action: str
    seconds_left: float


class SpotWatch:
    """A daemon thread that runs until the first notice or `stop()`. Failures of the service do not end it.

    `cloud` is `aws`, `azure` or `gcp`; the default address is the cloud's own. `on_notice` is called at most once, in the
    thread.
    """

    def __init__(
        self, cloud: str, *, address: str | None, on_notice: Callable[[Notice], None], poll_seconds: float = 2.0
    ) -> None:
        self._cloud = cloud
        self._address = (address or _ADDRESSES[cloud]).rstrip("/")
        self._on_notice = on_notice
        self._poll_seconds = poll_seconds
        # No proxy and no redirect: only the service itself can answer. It may close an idle connection between two polls.
        no_idle = httpx2.Limits(max_keepalive_connections=0)
        self._client = httpx2.Client(timeout=_REQUEST_SECONDS, trust_env=False, limits=no_idle)
        self._is_failing = False
        self._stopped = threading.Event()
        self.thread = threading.Thread(target=self._watch, name=f"spot notice of {cloud}", daemon=True)
        self.thread.start()

    def stop(self) -> None:
        """Stop without waiting. `on_notice` is not called after this, even if a request still runs for seconds."""
        self._stopped.set()

    def _watch(self) -> None:
        while not self._stopped.is_set():
            if (notice := self._look()) and not self._stopped.is_set():
                when, what = f"in {notice.seconds_left:.0f} s", f"{notice.cloud}: {notice.action}"
                logger.warning("The cloud reclaims this machine %s (%s)", when, what)
                self._on_notice(notice)
                return
            self._stopped.wait(self._poll_seconds)

    def _look(self) -> Notice | None:
        try:
            notice = _CLOUDS[self._cloud](self._ask)
        except Exception as error:  # no answer of the service may end the thread, or it would miss the notice
            if not self._is_failing:
                reason = " ".join(str(error).split())[:300] or type(error).__name__
                logger.warning("The metadata service of %s fails; polling continues (%s)", self._cloud, reason)
            self._is_failing = True
            return None
        self._is_failing = False
        return notice

    def _ask(self, method: str, path: str, headers: Mapping[str, str]) -> str:
        """The body of the answer, empty if nothing is there."""
        answer = self._client.request(method, self._address + path, headers=headers)
        return "" if answer.status_code == 404 else answer.raise_for_status().text.strip()


def _aws(ask: Ask) -> Notice | None:
    """Read EC2's interruption notice, which is absent (404) until about two minutes before the machine stops.

    https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/spot-instance-termination-notices.html
    IMDSv2 needs a token. In a container, it arrives only if the instance's hop limit is 2.
    """
    token = ask("PUT", "/latest/api/token", {"X-aws-ec2-metadata-token-ttl-seconds": "60"})
    answer = ask("GET", "/latest/meta-data/spot/instance-action", {"X-aws-ec2-metadata-token": token})
    if not answer:
        return None
    found = json.loads(answer)
    return _notice("aws", found["action"], found.get("time"), datetime.fromisoformat)


def _azure(ask: Ask) -> Notice | None:
    """Read the scheduled events: Preempt for a spot machine, Terminate for a machine of a scale set. Acknowledge none.

    https://learn.microsoft.com/azure/virtual-machines/linux/scheduled-events: a machine sees the events of its whole scale
    set, so `Resources` must name it. NotBefore is empty after the event has started. The first request turns the events on;
    until then, for up to two minutes, requests time out.
    """
    headers = {"Metadata": "true"}
    own = ask("GET", "/metadata/instance/compute/name?api-version=2021-02-01&format=text", headers).lower()
    events = json.loads(ask("GET", "/metadata/scheduledevents?api-version=2020-07-01", headers))["Events"]
    for event in events:
        if event["EventType"] in ("Preempt", "Terminate") and own in map(str.lower, event["Resources"]):
            if event["EventStatus"] == "Started":
                return Notice(cloud="azure", action=event["EventType"].lower(), seconds_left=0.0)
            return _notice("azure", event["EventType"], event.get("NotBefore"), parsedate_to_datetime)
    return None


def _gcp(ask: Ask) -> Notice | None:
    """Read Compute Engine's `preempted`, which changes from FALSE to TRUE at most 30 s before the machine stops.

    https://cloud.google.com/compute/docs/instances/create-use-spot
    """
    answer = ask("GET", "/computeMetadata/v1/instance/preempted", {"Metadata-Flavor": "Google"})
    if answer not in ("TRUE", "FALSE"):
        raise ValueError(f"preempted is {answer[:80]!r}")
    return _notice("gcp", "preempt", None, datetime.fromisoformat) if answer == "TRUE" else None


def _notice(cloud: str, action: str, time: str | None, parsed: Callable[[str], datetime]) -> Notice:
    """The notice of a stop at that time. If it cannot be parsed, after the time that the cloud promises."""
    try:
        seconds_left = max(0.0, (parsed(time or "") - datetime.now(UTC)).total_seconds())
    except (ValueError, TypeError):  # TypeError: the time has no time zone
        seconds_left = _PROMISED_SECONDS[cloud]
    return Notice(cloud=cloud, action=action.lower(), seconds_left=seconds_left)


_CLOUDS = {"aws": _aws, "azure": _azure, "gcp": _gcp}
