"""Check what both sides need: the fleet's Redis, the Hub and its token, and disks."""

import shutil
import socket
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from ipaddress import ip_address
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import redis
from huggingface_hub import constants

from fleet.doctor.checks import Check, Verdict, ok, warning, wrong
from fleet.doctor.redis_rights import WORKER, Role, check_rights, user_of
from fleet.errors import UsageError
from fleet.ledger.base import PREFIX
from fleet.ledger.connect import address_of, connect, refuse_eviction
from fleet.process.settings import Settings
from fleet.storage.hub_access import check_hub_answers, hub_token

_FIREWALL = (
    "Is the address in REDIS_URL right, and does a firewall let this machine through? "
    "See ops/README.md, Redis across machines."
)
_NEARLY_FULL = 0.75  # of the memory limit
_CLOCK_SECONDS = 15.0  # Flower's times are of the machines' own clocks, and buckets refuse signatures that are far off
_WRITE = "redis.call('SET', KEYS[1], 1, 'PX', 10000) return redis.call('DEL', KEYS[1])"
_MIB = 1 << 20


def redis_checks(
    settings: Settings, role: Role = WORKER, *, seconds: float = 15.0, clock: Callable[[], float] = time.time
) -> list[Check]:
    """The checks of the server that REDIS_URL names. All but the first are left out if it cannot be reached."""
    server = _Server(settings, clock)

    def check(name: str, look: Callable[[], Verdict], needs: tuple[str, ...] = ("redis",)) -> Check:
        return Check(name=name, look=look, mend=_FIREWALL, seconds=seconds, needs=needs)

    return [
        check("redis", server.reached, needs=()),
        check("redis rights", lambda: server.permits(role)),
        check("redis network", lambda: network_verdict(settings.redis_url or "")),
        check("redis settings", lambda: settings_verdict(server.info)),
        check("redis clock", server.has_this_time),
        check("redis write", server.takes_writes),
    ]


def network_verdict(redis_url: str) -> Verdict:
    """Whether others may read what goes to Redis: it is encrypted, or on a private network or this machine."""
    parts = urlsplit(redis_url)
    if parts.scheme != "redis":
        return ok("TLS." if parts.scheme == "rediss" else "A unix socket of this machine.")
    host = parts.hostname or "localhost"
    addresses = {str(found[4][0]).partition("%")[0] for found in socket.getaddrinfo(host, None)}
    if public := sorted(address for address in addresses if ip_address(address).is_global):
        return wrong(
            f"{host} has the public address {public[0]}, and the connection is not encrypted: others may read the password.",
            "Use rediss://, or put Redis on a private network or VPN. See ops/README.md, Redis across machines.",
        )
    return ok(f"Not encrypted, on a private network: {', '.join(sorted(addresses))}.")


class _Server:
    def __init__(self, settings: Settings, clock: Callable[[], float]) -> None:
        self._settings = settings
        self._clock = clock
        self._redis: redis.Redis
        self.info: dict[str, Any] = {}

    def reached(self) -> Verdict:
        self._redis = connect(self._settings)
        began = time.perf_counter()
        self._redis.ping()
        milliseconds = (time.perf_counter() - began) * 1000
        with suppress(redis.ResponseError):  # this user, or a managed service, does not allow it
            self.info = self._redis.info()
        return ok(f"{self._name} at {address_of(self._settings.ledger_url or '')} answers in {milliseconds:.1f} ms.")

    @property
    def _name(self) -> str:
        if "valkey_version" in self.info:
            return f"Valkey {self.info['valkey_version']}"
        return f"Redis {self.info.get('redis_version', 'of unknown version')}"

    def permits(self, role: Role) -> Verdict:
        """Ask for the rights of the user in REDIS_URL without running a command."""
        check_rights(self._redis, role)
        return ok(f"The user {user_of(self._redis)!r} may run all commands that {role.name} needs.")

    def has_this_time(self) -> Verdict:
        before = self._clock()
        seconds, microseconds = self._redis.time()
        here = (before + self._clock()) / 2
        off = here - (int(seconds) + int(microseconds) / 1e6)
        if abs(off) < _CLOCK_SECONDS:
            return ok(f"This machine's clock and that of Redis differ by {abs(off):.1f} s.")
        return warning(
            f"This machine's clock is {abs(off):,.0f} s {'ahead of' if off > 0 else 'behind'} that of Redis. Leases use the "
            "clock of Redis alone, but Flower's times are wrong, and buckets may refuse requests.",
            "Start a time service on both machines, such as chrony or systemd-timesyncd.",
        )

    def takes_writes(self) -> Verdict:
        """Run a script that writes a key and removes it: a replica, a full server or a user's rights may refuse it."""
        try:
            self._redis.eval(_WRITE, 1, f"{PREFIX}doctor:{uuid4().hex}")
        except redis.ResponseError as error:
            return wrong(
                f"Redis refuses a script that writes a key: {error}.",
                "Name the primary in REDIS_URL, with memory left, and a user with the rights of ops/redis/users.acl.",
            )
        return ok("A script wrote a key and removed it.")


def settings_verdict(info: Mapping[str, Any]) -> Verdict:
    """Whether the server may lose keys of a run. INFO is asked, because managed services refuse CONFIG."""
    if not {"maxmemory_policy", "aof_enabled", "used_memory"} <= info.keys():
        return warning(
            "INFO of this Redis does not show its settings to this user.",
            "Check yourself that maxmemory-policy is noeviction, that appendonly is yes, and that memory is left.",
        )
    refuse_eviction(info)
    if not info["aof_enabled"]:
        return warning(
            "AOF is off: the runs are lost when Redis restarts.",
            "Set appendonly yes. Without it, repeat `producer enqueue` after a restart: it takes over what is stored.",
        )
    used, limit = info["used_memory"], info.get("maxmemory") or info.get("total_system_memory")
    memory = f"{used / _MIB:,.0f} of {limit / _MIB:,.0f} MiB used" if limit else f"{used / _MIB:,.0f} MiB used"
    if limit and used >= _NEARLY_FULL * limit:
        return warning(
            f"{memory}. A Redis that is full refuses writes, and all workers wait.",
            "Raise maxmemory, or lower SHARDSIFT_CHECKPOINT_MIB.",
        )
    return ok(f"maxmemory-policy is {info['maxmemory_policy']}; AOF is on; {memory}.")


# The checks of the Hub: it answers, and the token here may do what is needed.

_NETWORK = "Check the network and HF_ENDPOINT; inputs, models and outputs may also be folders of this machine."
_NEW_TOKEN = "Make a token with write access at https://huggingface.co/settings/tokens, and set HF_TOKEN."


def hub_checks(*, is_needed: bool, output_repo: str | None = None) -> list[Check]:
    """Without `is_needed`, a Hub that does not answer is only a warning. `output_repo` is a dataset to be written."""
    return [
        Check(name="hub", look=lambda: _answers(is_needed=is_needed), mend=_NETWORK),
        Check(name="hub token", look=lambda: _token(output_repo), mend=_NEW_TOKEN, needs=("hub",)),
    ]


def _answers(*, is_needed: bool) -> Verdict:
    if constants.HF_HUB_OFFLINE and not is_needed:
        return warning(
            "HF_HUB_OFFLINE is set: the Hub is not asked, and nothing can be published on it.",
            "Unset it, if that is not intended.",
        )
    try:
        check_hub_answers()
    except UsageError as error:
        return wrong(str(error), _NETWORK) if is_needed else warning(str(error), _NETWORK)
    return ok("The Hub answers.")


def _token(output_repo: str | None) -> Verdict:
    token = hub_token()
    if token is None:
        says = "There is no Hugging Face token: only public datasets and models can be read, and none written."
        return wrong(says, _NEW_TOKEN) if output_repo else warning(says, _NEW_TOKEN)
    says = f"The token is of {token.user}, role {token.role}."
    if token.role != "read":
        return ok(says)
    return wrong(f"{says} It may not write to {output_repo}.", _NEW_TOKEN) if output_repo else warning(says, _NEW_TOKEN)


# Whether a folder can be written to and has enough space.

_GIB = 1 << 30
_ENOUGH_BYTES = 4 * _GIB  # the output files of a shard of FineWeb take up to 2 GiB


def disk_checks(settings: Settings, *, model_cache: Path | None = None) -> list[Check]:
    """The folders that a process writes to. A worker has a model cache too."""
    folders = {
        "state disk": (settings.state_dir, "SHARDSIFT_STATE_DIR"),
        "scratch disk": (settings.scratch_dir or Path(tempfile.gettempdir()), "SHARDSIFT_SCRATCH_DIR"),
        **({"model cache": (model_cache, "HF_HOME")} if model_cache else {}),
    }
    return [_disk_check(name, folder, variable) for name, (folder, variable) in folders.items()]


def _disk_check(name: str, folder: Path, variable: str) -> Check:
    mend = f"Free space, or set {variable} to a writable folder on a larger disk."
    return Check(name=name, look=lambda: disk_verdict(folder, mend), mend=mend)


def disk_verdict(folder: Path, mend: str, *, enough_bytes: int = _ENOUGH_BYTES) -> Verdict:
    """A missing folder may be created later, so its nearest parent is tried."""
    absolute = folder.expanduser().absolute()
    existing = next(place for place in (absolute, *absolute.parents) if place.exists())
    try:
        with tempfile.TemporaryFile(dir=existing):
            pass
        free = shutil.disk_usage(existing).free
    except OSError as error:
        return wrong(f"{folder} cannot be written to: {error.strerror}.", mend)
    says = f"{folder} has {free / _GIB:,.1f} GiB free."
    return ok(says) if free >= enough_bytes else warning(says, mend)
