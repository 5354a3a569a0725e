"""Compute Engine's notice of preemption.

https://cloud.google.com/compute/docs/instances/create-use-spot: `preempted` changes from FALSE to TRUE.
https://cloud.google.com/compute/docs/instances/spot: the machine stops at most 30 s later.
`maintenance-event` is not used: it changes up to an hour before the machine stops, and that stop sends a SIGTERM anyway.
"""

from worker.service.spot.metadata import Answer, MetadataService
from worker.service.spot.notice import Notice

_ADDRESS = "http://metadata.google.internal"
_PROMISED_SECONDS = 30.0


class Gcp:
    def __init__(self, address: str | None) -> None:
        self._service = MetadataService(address or _ADDRESS)

    def ask(self) -> Notice | None:
        answer = self._get("preempted")
        if answer.text not in ("TRUE", "FALSE"):
            raise answer.unexpected()
        if answer.text == "FALSE":
            return None
        return Notice(cloud="gcp", action="preempt", seconds_left=_PROMISED_SECONDS)

    def _get(self, key: str) -> Answer:
        return self._service.ask(f"/computeMetadata/v1/instance/{key}", {"Metadata-Flavor": "Google"})
