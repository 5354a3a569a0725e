"""Azure's scheduled events: Preempt for a spot machine, Terminate for a machine of a scale set. We acknowledge none.

https://learn.microsoft.com/azure/virtual-machines/linux/scheduled-events: every machine of a scale set sees the events of
all, so `Resources` must name this machine. NotBefore is empty after the event has started. A Preempt comes at most 30 s in
advance. The first request turns the events on; this may take two minutes, during which requests time out.
https://learn.microsoft.com/azure/virtual-machines/instance-metadata-service: the name of this machine.
"""

from email.utils import parsedate_to_datetime

from pydantic import BaseModel
from pydantic.alias_generators import to_pascal

from worker.service.spot.metadata import Answer, MetadataService
from worker.service.spot.notice import Notice, seconds_until

_ADDRESS = "http://169.254.169.254"
_EVENTS = "/metadata/scheduledevents?api-version=2020-07-01"
_NAME = "/metadata/instance/compute/name?api-version=2021-02-01&format=text"
_PROMISED_SECONDS = 30.0


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
    return seconds_until(event.not_before, parsedate_to_datetime, promised=_PROMISED_SECONDS)
