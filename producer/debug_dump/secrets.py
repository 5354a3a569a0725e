"""Remove from a text what this process knows to be secret, besides what looks like a secret (`fleet/redact.py`)."""

import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from huggingface_hub import get_token

from fleet.errors import UsageError
from fleet.redact import redacted
from fleet.settings import Settings, read_secret

_GONE = "***"
_SHORTEST = 4  # characters; the places of a shorter secret would show it
_SECRET_VARIABLE = re.compile(
    r"(?i)secret|passw|credential|connection_string|(?:^|_)(?:token|key|apikey|auth|signature|sig|sas|cookie)(?:_|$)"
)
_NAMES_A_FILE = re.compile(r"(?i)_(?:path|file|dir|sock)$")
_SWITCHES = {"true", "false"}  # HF_HUB_DISABLE_IMPLICIT_TOKEN=true holds no secret
_USER_INFO = re.compile(r"://[^\s/@]*:[^\s/@]+@")


class Cleaner:
    """Replaces secrets with `***`."""

    def __init__(self, settings: Settings, environment: Mapping[str, str] = os.environ) -> None:
        secrets = {secret for secret in _secrets(settings, environment) if len(secret) >= _SHORTEST} - _SWITCHES
        found = {form for secret in secrets for line in secret.splitlines() for form in _forms(line)}
        self._known = sorted(found, key=len, reverse=True)  # one secret may be a part of another

    def text(self, text: str) -> str:
        return "".join(self._line(line) for line in text.splitlines(keepends=True))

    def value(self, value: Any) -> Any:
        """The same JSON value, with every string and every name cleaned."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {self.text(str(name)): self.value(part) for name, part in value.items()}
        if isinstance(value, (list, tuple, set, frozenset)):
            return [self.value(part) for part in value]
        return value

    def _line(self, line: str) -> str:
        for secret in self._known:
            line = line.replace(secret, _GONE)
        return redacted(line)


def is_secret_variable(name: str) -> bool:
    return bool(_SECRET_VARIABLE.search(name)) and not _NAMES_A_FILE.search(name)


def _secrets(settings: Settings, environment: Mapping[str, str]) -> Iterator[str]:
    yield from (value for name, value in environment.items() if is_secret_variable(name))
    for value in environment.values():
        if _USER_INFO.search(value):
            yield from _of_url(value)
    with suppress(UsageError):  # a password file that cannot be read
        yield from _of_url(settings.ledger_url or "")
    yield get_token() or ""
    for file in (settings.redis_password_file, settings.flower_auth_file):
        if file is not None:
            with suppress(UsageError):
                yield from _of_pair(read_secret(file))
    yield from _of_pair(settings.flower_auth or "")


def _of_url(url: str) -> Iterator[str]:
    try:
        parts = urlsplit(url)
    except ValueError:
        yield url
        return
    yield unquote(parts.password or "")
    yield from (value for name, value in parse_qsl(parts.query) if is_secret_variable(name))


def _of_pair(user_and_password: str) -> Iterator[str]:
    yield user_and_password
    yield user_and_password.partition(":")[2]


def _forms(secret: str) -> set[str]:
    """A secret as it may be written: plain, in a URL, in JSON, in a Python repr."""
    return {secret, quote(secret, safe=""), quote(secret), json.dumps(secret)[1:-1], repr(secret)[1:-1]}
