"""The address of the fleet's Redis, read from one URL for both the ledger's client and Celery.

redis-py and kombu read URLs differently: a parameter that one accepts may be an error for the other, or name another
database.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

from shardsift.fleet.errors import UsageError

_TLS_FILES = ("ssl_ca_certs", "ssl_ca_path", "ssl_certfile", "ssl_keyfile")
_CERTIFICATE_CHECKS = {f"{prefix}{name}": name for name in ("required", "optional", "none") for prefix in ("", "cert_")}
_SWITCHES = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
_PARAMETERS = ("db", "username", "password", "ssl_cert_reqs", "ssl_check_hostname", *_TLS_FILES)


@dataclass(frozen=True, kw_only=True)
class RedisAddress:
    """The address of a Redis server: host and port, or a socket.

    `tls` has redis-py's TLS arguments; None means no TLS.
    """

    host: str = "localhost"
    port: int = 6379
    socket: str | None = None
    database: int = 0
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    tls: Mapping[str, Any] | None = None

    def __str__(self) -> str:
        return self.socket or f"{self._shown_host}:{self.port}"

    @property
    def _shown_host(self) -> str:
        return f"[{self.host}]" if ":" in self.host else self.host

    @property
    def tls_files(self) -> list[str]:
        return [value for name, value in (self.tls or {}).items() if name in _TLS_FILES]

    @property
    def url(self) -> str:
        if self.socket:
            return f"unix://{self._user}{quote(self.socket)}?db={self.database}"
        parameters = f"?{urlencode(self.tls)}" if self.tls else ""
        return f"{'redis' if self.tls is None else 'rediss'}://{self._place}{parameters}"

    @property
    def broker_url(self) -> str:
        """The URL for Celery. Celery gets `tls` separately, because Flower does not read it from a URL."""
        if self.socket:
            return f"redis+socket://{self._user}{quote(self.socket)}?virtual_host={self.database}"
        return f"{'redis' if self.tls is None else 'rediss'}://{self._place}"

    @property
    def _place(self) -> str:
        return f"{self._user}{self._shown_host}:{self.port}/{self.database}"

    @property
    def _user(self) -> str:
        if self.password is None:
            return f"{quote(self.username, safe='')}@" if self.username else ""
        return f"{quote(self.username or '', safe='')}:{quote(self.password, safe='')}@"


def redis_address(url: str, password: str | None) -> RedisAddress:
    """Parse a Redis URL. `password` applies if the URL has none.

    Raises UsageError for an invalid URL. The message quotes no value from the URL, because one may be a password.
    """
    try:
        return _read(url.strip(), password)
    except ValueError as error:
        raise UsageError(
            "REDIS_URL is not a valid Redis URL. Write redis://:password@host:6379/0 and percent-encode special characters."
        ) from error


def _read(url: str, password: str | None) -> RedisAddress:
    parts = urlsplit(url)
    if parts.scheme in ("sentinel", "redis+sentinel"):
        raise UsageError(
            "REDIS_URL names a Sentinel, which shardsift does not ask. Name the primary itself: redis://…."
        )
    given = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
    parameters = dict(given)
    is_socket, is_tls = parts.scheme == "unix", parts.scheme == "rediss"
    if parts.scheme not in ("redis", "rediss", "unix") or parts.fragment or "@" in parts.query or re.search(r"\s", url):
        raise ValueError("the scheme, or a character that needs encoding")
    _check_parameters(parameters, is_tls=is_tls)
    path = unquote(parts.path)
    databases = {parameters.pop("db", ""), "" if is_socket else path.strip("/")} - {""} or {"0"}
    if len(given) > len(dict(given)) or len(databases) > 1 or (is_socket and (parts.hostname or len(path) < 2)):
        raise ValueError("said twice, or no path")
    (database,) = databases
    if not (database.isascii() and database.isdigit()):
        raise ValueError("no number of a database")
    return RedisAddress(
        host=unquote(parts.hostname or "") or RedisAddress.host,
        port=RedisAddress.port if is_socket or parts.port is None else parts.port,
        socket=path if is_socket else None,
        database=int(database),
        username=unquote(parts.username or "") or parameters.pop("username", None),
        password=unquote(parts.password or "") or parameters.pop("password", None) or password,
        tls=_tls(parameters) if is_tls else None,
    )


def _check_parameters(parameters: Mapping[str, str], *, is_tls: bool) -> None:
    if unknown := [name for name in parameters if name not in _PARAMETERS]:
        raise UsageError(
            f"REDIS_URL has the parameter {unknown[0]}, which shardsift does not take. It takes {', '.join(_PARAMETERS)}."
        )
    if not is_tls and (of_tls := [name for name in parameters if name.startswith("ssl_")]):
        raise UsageError(f"REDIS_URL has the parameter {of_tls[0]}, but no TLS. Write rediss:// instead of redis://.")


def _tls(parameters: Mapping[str, str]) -> dict[str, Any]:
    """Return redis-py's TLS arguments from a URL's parameters. Raises UsageError for a wrong value.

    By default the server's certificate is checked, unlike in kombu.
    """
    checks = parameters.get("ssl_cert_reqs", "required").lower()
    is_named = parameters.get("ssl_check_hostname", "true").lower()
    if checks not in _CERTIFICATE_CHECKS or is_named not in _SWITCHES:
        raise UsageError(
            "In REDIS_URL, ssl_cert_reqs is required, optional or none, and ssl_check_hostname true or false."
        )
    files = {name: parameters[name] for name in _TLS_FILES if name in parameters}
    check = _CERTIFICATE_CHECKS[checks]
    return {"ssl_cert_reqs": check, "ssl_check_hostname": _SWITCHES[is_named] and check != "none", **files}
