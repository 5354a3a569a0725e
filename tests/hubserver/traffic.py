"""What went over the wire and what shall go wrong on it: the request log and the injected faults. Knows no Hub."""

import json
import re
import threading
from dataclasses import dataclass, field

# What the Hub says with these statuses, for a fault that names no body of its own.
HUB_WORDING = {
    409: "Another commit operation is in progress for this repository. Please try again later.",
    412: "A commit has happened since. Please refresh and try again.",
    429: "We had to rate limit you, you hit the quota of requests for your account.",
    500: "Internal Error - We're working hard to fix this as soon as possible!",
    503: "Service Unavailable",
    504: "Gateway Timeout",
}


@dataclass(frozen=True, kw_only=True)
class Request:
    """One request, as it was answered. `status` is 0 when it got no answer: a fault, or the client broke off."""

    time: float  # Unix seconds, when the answer was ready
    method: str
    path: str  # as sent, percent-encoding and all
    query: str
    token_name: str | None  # None when no token was sent
    status: int
    bytes_in: int  # of the body
    bytes_out: int  # of the body
    user_agent: str


class RequestLog:
    def __init__(self) -> None:
        self._requests: list[Request] = []

    def append(self, request: Request) -> None:
        self._requests.append(request)

    def all(self) -> list[Request]:
        return list(self._requests)

    def clear(self) -> None:
        self._requests.clear()


@dataclass(frozen=True, kw_only=True)
class WireFault:
    path: re.Pattern[str]
    method: str | None  # None matches every method
    status: int | None  # None answers as usual, so that only the delay is felt
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes | None = None  # None is the Hub's wording for the status
    drop: bool = False
    drop_after: bool = False
    delay_seconds: float = 0.0

    @property
    def answers(self) -> bool:
        """Whether the fault answers in the Hub's place, so that the request has no effect."""
        return not self.drop_after and (self.drop or self.status is not None)

    def answer_body(self) -> bytes:
        if self.body is not None:
            return self.body
        return json.dumps({"error": HUB_WORDING.get(self.status or 0, "Injected fault")}).encode()


class WireFaults:
    """Faults that still wait for their request, oldest first."""

    def __init__(self) -> None:
        self._waiting: list[WireFault] = []
        self._taking = threading.Lock()

    def add(self, fault: WireFault, times: int) -> None:
        with self._taking:
            self._waiting += [fault] * times

    def take(self, method: str, path: str) -> WireFault | None:
        with self._taking:
            for position, fault in enumerate(self._waiting):
                if fault.method in (None, method) and fault.path.search(path):
                    return self._waiting.pop(position)
        return None

    def left(self) -> int:
        return len(self._waiting)

    def forget(self) -> None:
        with self._taking:
            self._waiting.clear()
