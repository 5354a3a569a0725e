"""Each line of the doctor about Redis, once right and once wrong, on a real server."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from fleet.doctor.checks import Result, has_unfinished
from fleet.doctor.services import network_verdict, redis_checks
from fleet.ledger import Ledger
from fleet.process.settings import Settings
from support.diagnoses import diagnosed, not_ok
from support.redis_servers import redis_server
from support.server_of_version import server_of_version
from support.waiting import wait_until

LINES = ["redis", "redis rights", "redis network", "redis settings", "redis clock", "redis write"]
PASSWORD = "pass-w0rd-of-redis"


@pytest.fixture
def client(ledger: Ledger) -> Iterator[redis.Redis]:
    """Changes of the server's settings end with the test."""
    before = ledger.redis.config_get("*")
    yield ledger.redis
    for name in ("maxmemory", "maxmemory-policy"):
        ledger.redis.config_set(name, before[name])
    ledger.redis.replicaof("NO", "ONE")


def test_a_sound_server_is_ok_and_nothing_is_left_in_it(settings: Settings, client: redis.Redis) -> None:
    found = diagnosed(redis_checks(settings))

    assert list(found) == LINES
    assert not_ok(found) == {}
    assert client.keys("*") == []


def test_one_that_would_delete_keys_is_wrong(settings: Settings, client: redis.Redis) -> None:
    client.config_set("maxmemory-policy", "allkeys-lru")
    client.config_set("maxmemory", "1gb")

    found = diagnosed(redis_checks(settings))

    assert not_ok(found) == {"redis settings": Result.WRONG}
    assert "noeviction" in found["redis settings"].mend


def test_one_that_stores_nothing_is_a_warning(tmp_path: Path) -> None:
    with redis_server(tmp_path, "--appendonly", "no") as server:
        assert not_ok(diagnosed(redis_checks(Settings(redis_url=server.url)))) == {"redis settings": Result.WARNING}


def test_a_full_one_is_told_and_refuses_writes(settings: Settings, client: redis.Redis) -> None:
    client.config_set("maxmemory", client.info("memory")["used_memory"])

    found = diagnosed(redis_checks(settings))

    assert not_ok(found) == {"redis settings": Result.WARNING, "redis write": Result.WRONG}
    assert "OOM" in found["redis write"].says or "maxmemory" in found["redis write"].says


def test_a_replica_is_wrong(settings: Settings, client: redis.Redis) -> None:
    client.replicaof("127.0.0.1", "1")

    found = diagnosed(redis_checks(settings))

    assert not_ok(found) == {"redis write": Result.WRONG}
    assert "primary" in found["redis write"].mend


@pytest.mark.parametrize("ahead", [60.0, -3600.0])
def test_a_clock_that_is_off_is_told(settings: Settings, client: redis.Redis, ahead: float) -> None:
    seconds, _ = client.time()

    found = diagnosed(redis_checks(settings, clock=lambda: seconds + ahead))

    assert not_ok(found) == {"redis clock": Result.WARNING}
    assert ("ahead of" if ahead > 0 else "behind") in found["redis clock"].says


@pytest.mark.parametrize(
    ("url", "result"),
    [
        ("unix:///run/redis.sock", Result.OK),
        ("redis://127.0.0.1:6379/0", Result.OK),
        ("redis://10.0.0.5:6379/0", Result.OK),
        ("redis://100.100.1.2:6379/0", Result.OK),  # of a VPN such as Tailscale
        ("rediss://1.1.1.1:6379/0", Result.OK),
        (f"redis://:{PASSWORD}@1.1.1.1:6379/0", Result.WRONG),
        ("redis://[2606:4700:4700::1111]:6379/0", Result.WRONG),
    ],
)
def test_a_public_address_needs_tls(url: str, result: Result) -> None:
    verdict = network_verdict(url)

    assert verdict.result is result
    assert bool(verdict.mend) == (result is not Result.OK)
    assert PASSWORD not in verdict.says


@pytest.mark.parametrize(
    ("url", "says"),
    [
        (f"redis://:{PASSWORD}@127.0.0.1:1/0", "No Redis answers at 127.0.0.1:1"),
        (f"redis://:{PASSWORD}@x y:z/0", "not a valid Redis URL"),
    ],
)
def test_one_that_is_not_reached_is_the_only_line(url: str, says: str) -> None:
    found = diagnosed(redis_checks(Settings(redis_url=url)))

    assert not_ok(found) == {"redis": Result.WRONG}
    assert list(found) == ["redis"]
    assert says in found["redis"].says
    assert PASSWORD not in str(found)


def test_one_that_is_too_old_is_the_only_line() -> None:
    with server_of_version("5.0.7") as (url, _):
        found = diagnosed(redis_checks(Settings(redis_url=url)))

    assert list(found) == ["redis"]
    assert "5.0.7" in found["redis"].says
    assert "6.2 or later" in found["redis"].mend


def test_one_that_does_not_tell_its_settings_is_a_warning() -> None:
    with server_of_version(None) as (url, _):
        found = diagnosed(redis_checks(Settings(redis_url=url)))

    assert found["redis settings"].result is Result.WARNING
    assert "noeviction" in found["redis settings"].mend


def test_one_that_asks_for_another_password_or_does_not_answer_is_wrong(tmp_path: Path) -> None:
    with redis_server(tmp_path, "--requirepass", PASSWORD) as server:
        refused = diagnosed(redis_checks(Settings(redis_url=server.url)))
        with server.frozen():
            silent = diagnosed(redis_checks(Settings(redis_url=server.url), seconds=0.2))
        wait_until(lambda: not has_unfinished(), description="the late check ends", seconds=10)

    assert "refuses the password" in refused["redis"].says
    assert silent["redis"].says == "No answer within 0.2 s."
    assert "firewall" in silent["redis"].mend
    assert [*refused, *silent] == ["redis", "redis"]
