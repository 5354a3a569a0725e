"""EC2's spot interruption notice, read from IMDSv2.

https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/spot-instance-termination-notices.html: `instance-action` is
absent (404) until about two minutes before the machine is stopped or terminated. A hibernation begins at once.
https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/instance-metadata-v2-how-it-works.html: a token is valid for at most
six hours. In a container, tokens arrive only if the instance's hop limit is 2.
https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/instancedata-data-retrieval.html: on 401, request a new token.
"""

import time
from datetime import datetime

from pydantic import BaseModel

from worker.service.spot.metadata import Answer, MetadataService
from worker.service.spot.notice import Notice, seconds_until

_ADDRESS = "http://169.254.169.254"
_TTL = "X-aws-ec2-metadata-token-ttl-seconds"
_TOKEN = "X-aws-ec2-metadata-token"
_TOKEN_SECONDS = 6 * 3600
_RENEW_SECONDS = 60  # before a token expires
_PROMISED_SECONDS = 120.0


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
        seconds_left = seconds_until(found.time, datetime.fromisoformat, promised=_PROMISED_SECONDS)
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
