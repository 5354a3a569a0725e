"""The request log and the injected faults. Knows nothing of the Hub."""

import json
import re
from dataclasses import dataclass, field

# The Hub's messages, for faults without a body.
HUB_MESSAGES = {
    409: "Another commit operation is in progress for this repository. Please try again later.",
    412: "A commit has happened since. Please refresh and try again.",
}


@dataclass(frozen=True, kw_only=True)
class Request:
    """A request and its outcome. `status` is 0 if it got no response: a fault, or the client disconnected."""

    method: str
    path: str  # as sent, with percent-encoding
    token_name: str | None  # None if no token was sent
    status: int
    bytes_in: int  # of the body


@dataclass(frozen=True, kw_only=True)
class WireFault:
    """A request that matches is answered with this status and without effect.

    `drop` closes the connection instead of answering. `drop_after` closes it after the request took effect: the response
    is lost.
    """

    path: re.Pattern[str]
    method: str | None = None  # None matches every method
    status: int | None = 503  # None answers normally, after the delay
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes | None = None  # None sends the Hub's message for the status
    drop: bool = False
    drop_after: bool = False
    delay_seconds: float = 0.0

    @property
    def answers(self) -> bool:
        """Whether the fault replaces the response, so that the request has no effect."""
        return not self.drop_after and (self.drop or self.status is not None)

    def answer_body(self) -> bytes:
        if self.body is not None:
            return self.body
        return json.dumps({"error": HUB_MESSAGES.get(self.status or 0, "Injected fault")}).encode()


class WireFaults:
    """Faults that no request has met yet, oldest first."""

    def __init__(self) -> None:
        self._waiting: list[WireFault] = []

    def add(self, fault: WireFault, times: int) -> None:
        self._waiting += [fault] * times

    def take(self, method: str, path: str) -> WireFault | None:
        for position, fault in enumerate(self._waiting):
            if fault.method in (None, method) and fault.path.search(path):
                return self._waiting.pop(position)
        return None

    def left(self) -> int:
        return len(self._waiting)

    def forget(self) -> None:
        self._waiting = []
