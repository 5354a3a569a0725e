"""Nothing that others may read holds a password or a token: logs, arguments, messages, the ledger, the output.

The errors of a Redis that is not reached are in tests/integration/ledger/test_ledger_connecting.py.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pyarrow.parquet as pq
import pytest
import redis

from shardsift.producer.local.demo_data import write_shards
from support.disturbed_runs import DisturbedRuns
from support.fleet import Fleet
from support.injected_faults import STORE_RECEIPT
from support.ports import unused_port
from support.processes import started
from support.proxy import proxied
from support.redis_servers import RedisServer, redis_server
from support.waiting import wait_until

PASSWORD = "pass-w0rd-of-redis"
TOKEN = "hf_TheTokenOfTheHubThatNobodySees"
FLOWER_PASSWORD = "pass-w0rd-of-flower"
SIGNATURE = "s1gnature-of-an-address"  # as `tests/inject` raises it
SECRETS = (PASSWORD, TOKEN, FLOWER_PASSWORD, SIGNATURE)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    with redis_server(tmp_path / "own-redis", "--requirepass", PASSWORD) as server:
        yield server


@pytest.fixture
def address(server: RedisServer) -> Iterator[str]:
    with proxied(server.socket) as (_, address):
        yield address


@pytest.fixture
def fleet(fleet: Fleet, address: str) -> Fleet:
    """A fleet whose processes have the password in REDIS_URL."""
    url = f"redis://:{PASSWORD}@{address}/0"
    environment = {"REDIS_URL": url, "HF_TOKEN": TOKEN, "SHARDSIFT_FLOWER_AUTH": f"me:{FLOWER_PASSWORD}"}
    return replace(fleet, redis_url=url, environment={**fleet.environment, **environment})


@pytest.fixture
def by_file(address: str, tmp_path: Path) -> dict[str, str]:
    """The environment of a process that reads the password from a file."""
    (tmp_path / "redis_password").write_text(f"{PASSWORD}\n")
    return {"REDIS_URL": f"redis://{address}/0", "REDIS_PASSWORD_FILE": str(tmp_path / "redis_password")}


class Seen:
    """All texts that others may read, with their places. A secret is reported by its place."""

    def __init__(self) -> None:
        self._places: dict[str, str] = {}

    def add(self, place: str, content: object) -> None:
        self._places[place] = self._places.get(place, "") + str(content)

    def check(self) -> None:
        for secret in SECRETS:
            assert [place for place, text in self._places.items() if secret in text] == []

    def shows(self, text: str) -> bool:
        """Check that the texts contain what they should. An empty collection would never hold a secret."""
        return any(text in content for content in self._places.values())


def look_at_processes(seen: Seen) -> None:
    for process in psutil.Process().children(recursive=True):
        try:
            arguments = process.cmdline()
        except (psutil.NoSuchProcess, psutil.ZombieProcess):
            continue
        if "redis-server" not in " ".join(
            arguments[:1]
        ):  # the test's own server, which has the password as an argument
            seen.add(f"arguments of {Path(' '.join(arguments[1:2])).name} {process.pid}", arguments)


def look_at_redis(seen: Seen, url: str) -> None:
    with redis.Redis.from_url(url) as client:
        for key in client.keys("*"):
            seen.add(f"key {key!r}", value_of(client, key))


def value_of(client: redis.Redis, key: bytes) -> Any:
    match client.type(key):
        case b"string":
            return client.get(key)
        case b"hash":
            return client.hgetall(key)
        case b"list":
            return client.lrange(key, 0, -1)
        case b"set":
            return client.smembers(key)
        case _:
            return client.zrange(key, 0, -1)


def look_at_files(seen: Seen, folder: Path) -> None:
    for file in (path for path in folder.rglob("*") if path.is_file()):
        seen.add(f"file {file.name}", file.read_bytes().decode(errors="replace"))
        if file.suffix == ".parquet":
            seen.add(f"rows of {file}", pq.read_table(file).to_pylist())
            seen.add(f"metadata of {file}", pq.read_schema(file).metadata)


@pytest.mark.faults
def test_no_secret_is_in_anything_that_others_may_read(
    runs: DisturbedRuns, by_file: dict[str, str], address: str, tmp_path: Path
) -> None:
    seen = Seen()
    runs.shards = tmp_path / "shards"
    write_shards(runs.shards, shards=3, rows=24, seed=4)
    runs.faults.use_stand_in(seconds_a_batch=0.1)
    runs.faults.at(STORE_RECEIPT, "before", "signed error")
    run_id = runs.enqueue()
    (runs.shards / "000_00002.parquet").write_bytes(b"no Parquet")
    look_at_redis(seen, runs.fleet.redis_url)

    port = str(unused_port())
    flower = started("producer", "flower", "--port", port, environment=runs.fleet.environment, log=runs.fleet.log("f"))
    with flower, runs.finalizer(), runs.worker("w1"), runs.worker("w2", **by_file):
        wait_until(lambda: runs.fleet.ledger.counts(run_id).running, description="shards run")
        look_at_processes(seen)
        look_at_redis(seen, runs.fleet.redis_url)
        wait_until(lambda: not runs.fleet.ledger.counts(run_id).open, description="all shards are done or failed")
        look_at_redis(seen, runs.fleet.redis_url)
        for command in (("status", run_id), ("status", "--json"), ("finalize", run_id), ("runs",)):
            told = runs.fleet.producer(*command)
            seen.add(f"producer {command[0]}", told.stdout + told.stderr)
    (failure, *_) = runs.fleet.ledger.failures(run_id)
    look_at_redis(seen, runs.fleet.redis_url)
    look_at_files(seen, runs.output)
    look_at_files(seen, runs.fleet.log("f").parent)

    assert failure.traceback
    assert all(seen.shows(text) for text in ("'flower'", "'serve'", "shardsift.score_shard", failure.error, "attempt"))
    seen.check()
