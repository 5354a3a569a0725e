"""Query a machine's metadata service over HTTP. Knows no cloud."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

import httpx2
from pydantic import BaseModel, ValidationError

from fleet.errors import TransientError

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
