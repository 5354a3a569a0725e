"""Compute Engine's two notices: preemption, and maintenance, for which a machine with a GPU is stopped too.

https://cloud.google.com/compute/docs/instances/create-use-spot: `preempted` turns from FALSE to TRUE.
https://cloud.google.com/compute/docs/instances/spot: the machine is off 30 s later, at best.
https://cloud.google.com/compute/docs/gpus/gpu-host-maintenance: `maintenance-event` says TERMINATE_ON_HOST_MAINTENANCE
an hour before a machine with a GPU is stopped, 60 s before any other. It does not say since when it says so.
"""

from worker.spot.metadata import Answer, MetadataService
from worker.spot.notice import Notice

_ADDRESS = "http://metadata.google.internal"
_PROMISED_SECONDS = 30.0


class Gcp:
    def __init__(self, address: str | None) -> None:
        self._service = MetadataService(address or _ADDRESS)

    def ask(self) -> Notice | None:
        if self._is_preempted():
            return Notice(cloud="gcp", action="preempt", seconds_left=_PROMISED_SECONDS)
        if self._get("maintenance-event").text == "TERMINATE_ON_HOST_MAINTENANCE":
            return Notice(cloud="gcp", action="terminate", seconds_left=None)
        return None

    def _is_preempted(self) -> bool:
        answer = self._get("preempted")
        if answer.text not in ("TRUE", "FALSE"):
            raise answer.unexpected()
        return answer.text == "TRUE"

    def _get(self, key: str) -> Answer:
        return self._service.ask(f"/computeMetadata/v1/instance/{key}", {"Metadata-Flavor": "Google"})
