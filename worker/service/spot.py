"""Poll the cloud's metadata service until it announces that this spot machine will be reclaimed."""

import json
import logging
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import partial

import httpx2

_LINK_LOCAL = "http://169.254.169.254"
_ADDRESSES = {"aws": _LINK_LOCAL, "azure": _LINK_LOCAL, "gcp": "http://metadata.google.internal"}
_REQUEST_SECONDS = 2.0
Ask = Callable[[str, str, Mapping[str, str]], str]  # method, path, headers
logger = logging.getLogger(__name__)


def watch_for_notice(
    cloud: str, *, address: str | None, on_notice: Callable[[float], None], poll_seconds: float = 2.0
) -> None:
    """Poll until the cloud announces the end of this machine, then call `on_notice` once with the seconds left.

    `cloud` is `aws`, `azure` or `gcp`. If `address` is None, asks the cloud's own metadata service. Polling continues
    if the service fails.
    """
    # No proxy and no redirect, because only the service itself can answer. It may close idle connections between polls.
    no_idle = httpx2.Limits(max_keepalive_connections=0)
    client = httpx2.Client(
        base_url=address or _ADDRESSES[cloud], timeout=_REQUEST_SECONDS, trust_env=False, limits=no_idle
    )
    is_failing = False
    while True:
        try:
            seconds_left = _CLOUDS[cloud](partial(_ask, client))
            if seconds_left is not None:
                break
            is_failing = False
        except Exception as error:  # no error may end the watch, or it would miss the notice
            if not is_failing:
                reason = " ".join(str(error).split())[:300] or type(error).__name__
                logger.warning("The metadata service of %s fails; polling continues (%s)", cloud, reason)
            is_failing = True
        time.sleep(poll_seconds)
    logger.warning("The cloud reclaims this machine in %.0f s (%s)", seconds_left, cloud)
    on_notice(seconds_left)


def _ask(client: httpx2.Client, method: str, path: str, headers: Mapping[str, str]) -> str:
    answer = client.request(method, path, headers=headers)
    return "" if answer.status_code == 404 else answer.raise_for_status().text.strip()


def _aws(ask: Ask) -> float | None:
    """Return the seconds until EC2 reclaims the machine. None if there is no interruption notice.

    The notice is absent (404) until about two minutes before the machine stops.

    https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/spot-instance-termination-notices.html
    IMDSv2 needs a token, which arrives in a container only if the instance's hop limit is 2.
    """
    token = ask("PUT", "/latest/api/token", {"X-aws-ec2-metadata-token-ttl-seconds": "60"})
    answer = ask("GET", "/latest/meta-data/spot/instance-action", {"X-aws-ec2-metadata-token": token})
    if not answer:
        return None
    return _seconds_until(json.loads(answer).get("time"), datetime.fromisoformat, promised=120.0)


def _azure(ask: Ask) -> float | None:
    """Return the seconds until a scheduled event ends this machine. None if there is no such event.

    The event is Preempt for a spot machine, and Terminate for a machine of a scale set. It is not acknowledged, because
    Azure may then end the machine before the announced time.

    https://learn.microsoft.com/azure/virtual-machines/linux/scheduled-events: a machine sees the events of its whole
    scale set, so `Resources` must name it. NotBefore is empty after the event has started. The first request turns the
    events on; until then, for up to two minutes, requests time out.
    """
    headers = {"Metadata": "true"}
    own = ask("GET", "/metadata/instance/compute/name?api-version=2021-02-01&format=text", headers).lower()
    events = json.loads(ask("GET", "/metadata/scheduledevents?api-version=2020-07-01", headers))["Events"]
    for event in events:
        if event["EventType"] in ("Preempt", "Terminate") and own in map(str.lower, event["Resources"]):
            if event["EventStatus"] == "Started":
                return 0.0
            return _seconds_until(event.get("NotBefore"), parsedate_to_datetime, promised=30.0)
    return None


def _gcp(ask: Ask) -> float | None:
    """Return 30 seconds if Compute Engine has announced the machine's end, otherwise None.

    Its `preempted` changes from FALSE to TRUE at most 30 s before the machine stops.

    https://cloud.google.com/compute/docs/instances/create-use-spot
    """
    answer = ask("GET", "/computeMetadata/v1/instance/preempted", {"Metadata-Flavor": "Google"})
    if answer not in ("TRUE", "FALSE"):
        raise ValueError(f"preempted is {answer[:80]!r}")
    return 30.0 if answer == "TRUE" else None


def _seconds_until(when: str | None, parsed: Callable[[str], datetime], *, promised: float) -> float:
    """Return the seconds until `when`, or the `promised` seconds if `when` cannot be parsed."""
    try:
        return max(0.0, (parsed(when or "") - datetime.now(UTC)).total_seconds())
    except (ValueError, TypeError):  # TypeError: the time has no time zone
        return promised


_CLOUDS = {"aws": _aws, "azure": _azure, "gcp": _gcp}
