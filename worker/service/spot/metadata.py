"""Ask a machine's metadata service over HTTP. Knows no cloud."""

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
        """Raises TransientError where the status is not 200."""
        if self.status != 200:
            raise self.unexpected()
        return self.body.decode(errors="replace").strip()

    def parsed(self, model: type[Model]) -> Model:
        """Raises TransientError where it is something else."""
        try:
            return model.model_validate_json(self.text)
        except ValidationError as error:
            raise self.unexpected() from error

    def unexpected(self) -> TransientError:
        return TransientError(f"{self.request} was answered {self.status} {self.body[:80]!r}")


class MetadataService:
    """One service, never reached through a proxy, and believed only where it answers itself."""

    def __init__(self, address: str) -> None:
        self._address = address.rstrip("/")
        self._client = httpx2.Client(
            timeout=_REQUEST_SECONDS,
            trust_env=False,
            follow_redirects=False,
            limits=httpx2.Limits(max_keepalive_connections=0),  # a kept one may be closed on us between two polls
        )

    def ask(self, path: str, headers: Mapping[str, str], *, method: str = "GET") -> Answer:
        """Whatever it answers. Raises TransientError or httpx2.HTTPError where it does not, in time and in bounds."""
        request = f"{method} {self._address}{path}"
        asked = time.monotonic()
        plain = {**headers, "Accept-Encoding": "identity"}  # a packed answer could unpack to any size
        with self._client.stream(method, self._address + path, headers=plain) as response:
            body = b""
            for part in response.iter_raw():
                body += part
                if len(body) > _MAX_BYTES:
                    raise TransientError(f"{request} was answered with more than {_MAX_BYTES} bytes")
                if time.monotonic() - asked > _REQUEST_SECONDS:  # the client's own limit is for each part
                    raise TransientError(f"{request} was not answered whole in {_REQUEST_SECONDS:.0f} s")
            return Answer(request=request, status=response.status_code, headers=response.headers, body=body)
