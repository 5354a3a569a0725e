"""Connecting to Redis: every error says what to do, and none shows the password."""

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path

import pytest
import redis

from shardsift.fleet.errors import UsageError
from shardsift.fleet.ledger import Ledger
from shardsift.fleet.process.children import running
from shardsift.fleet.process.settings import Settings
from shardsift.producer.local.redis import find_redis_server
from support.ledger_states import claimed
from support.ports import unused_port
from support.processes import call_command
from support.records import a_receipt, a_shard, a_spec
from support.redis_servers import RedisServer, redis_server
from support.waiting import wait_until


@pytest.fixture(scope="module")
def locked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    with redis_server(tmp_path_factory.mktemp("locked"), "--requirepass", "correct horse/1@2") as server:
        yield server


@pytest.fixture(scope="module")
def limited(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    with redis_server(tmp_path_factory.mktemp("evicting"), "--maxmemory", "100mb") as server:
        yield server


class TestConnecting:
    @pytest.mark.parametrize(
        ("url", "address"),
        [
            ("redis://:s3cret@127.0.0.1:1/0", "127.0.0.1:1"),
            ("redis://127.0.0.1:1/0?password=s3cret", "127.0.0.1:1"),
            ("unix:///nowhere/redis.sock?password=s3cret", "/nowhere/redis.sock"),
            ("redis://:s3cret@no-such-host.invalid:6379/0", "no-such-host.invalid:6379"),
        ],
    )
    def test_a_redis_that_does_not_answer_is_named_without_its_password(self, url: str, address: str) -> None:
        with pytest.raises(UsageError) as refused:
            Ledger.connect(Settings(redis_url=url))

        message = str(refused.value)
        assert f"No Redis answers at {address}" in message
        assert "s3cret" not in message
        assert "\n" not in message

    def test_a_redis_that_starts_later_is_waited_for(self, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        with redis_server(tmp_path) as server:
            server.kill()
            with ThreadPoolExecutor() as pool:
                connecting = pool.submit(Ledger.connect, Settings(redis_url=server.url), wait_seconds=60)
                wait_until(lambda: "Waiting for it" in caplog.text, description="it waits")
                server.launch()
                connecting.result(timeout=30)

        assert caplog.text.count("Waiting for it") == 1

    @pytest.mark.parametrize("url", ["unix://{}", "unix://:wr0ng@{}"])
    def test_a_wrong_or_missing_password_is_told_without_it(self, locked: RedisServer, url: str) -> None:
        with pytest.raises(UsageError, match="Check the user and the password") as refused:
            Ledger.connect(Settings(redis_url=url.format(locked.socket)))

        assert str(locked.socket) in str(refused.value)
        assert "wr0ng" not in str(refused.value)


class TestServersThatCannotBeOurs:
    """They are refused before anything is written, with what to do."""

    @pytest.mark.parametrize(
        ("options", "says"),
        [
            (("--cluster-enabled", "yes"), "cluster mode.*cluster-enabled no"),
            (("--replicaof", "127.0.0.1 1"), "It is a replica. Name its primary in REDIS_URL"),
            (("--rename-command", "EVALSHA", ""), "It lacks the command"),
            (("--maxmemory", "99mb", "--maxmemory-policy", "allkeys-lru"), "policy is allkeys-lru"),
        ],
    )
    def test_a_server_that_fails_later_is_refused(self, tmp_path: Path, options: tuple[str, ...], says: str) -> None:
        with redis_server(tmp_path, *options) as server:
            enqueued = call_command(
                *("producer", "enqueue", "--input", ".", "--model", "not/asked-for", "--output", "out"),
                environment={"REDIS_URL": server.url},
                folder=tmp_path,
            )

            with pytest.raises(UsageError, match=says):
                Ledger.connect(Settings(redis_url=server.url))

        assert enqueued.returncode == 2
        assert re.search(says, enqueued.stderr.splitlines()[-1])
        assert "again later" not in enqueued.stderr

    def test_a_sentinel_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / "sentinel.conf").touch()
        port = unused_port()
        command = [find_redis_server(), str(tmp_path / "sentinel.conf"), "--sentinel", "--port", str(port)]

        with (
            running(command, log=tmp_path / "log", stop_seconds=10),
            pytest.raises(UsageError, match=f"127.0.0.1:{port} is a Sentinel"),
        ):
            Ledger.connect(Settings(redis_url=f"redis://127.0.0.1:{port}"), wait_seconds=30)

    def test_a_replica_is_waited_for_to_be_primary(self, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        with redis_server(tmp_path, "--replicaof", "127.0.0.1 1") as server, ThreadPoolExecutor() as pool:
            connecting = pool.submit(Ledger.connect, Settings(redis_url=server.url), wait_seconds=60)
            wait_until(lambda: "Waiting for it" in caplog.text, description="it waits")
            server.client.replicaof("NO", "ONE")
            connecting.result(timeout=30)

    def test_a_file_of_tls_that_is_not_there_is_named(self) -> None:
        with pytest.raises(UsageError, match="/no/such.pem"):
            Ledger.connect(Settings(redis_url="rediss://127.0.0.1:1?ssl_ca_certs=/no/such.pem"))

    @pytest.mark.parametrize(("version", "is_refused"), [("5.0.7", True), ("6.2.0", False), (None, False)])
    def test_a_server_that_is_too_old_is_refused_and_one_that_does_not_say_its_version_is_accepted(
        self, redis_url: str, monkeypatch: pytest.MonkeyPatch, version: str | None, is_refused: bool
    ) -> None:
        ask = redis.Redis.execute_command

        def told(client: redis.Redis, *words: str, **options: object) -> object:
            hello = {"mode": "standalone", "role": "master", **({"version": version} if version else {})}
            return hello if words[0] == "HELLO" else ask(client, *words, **options)

        monkeypatch.setattr(redis.Redis, "execute_command", told)
        with pytest.raises(UsageError, match=r"5\.0\.7.*6\.2 or later") if is_refused else nullcontext():
            Ledger.connect(Settings(redis_url=redis_url))


class TestEviction:
    """A Redis that deletes keys when it is full would delete parts of runs."""

    @pytest.mark.parametrize("policy", ["noeviction", "volatile-lru", "volatile-ttl"])
    def test_a_redis_that_deletes_no_key_of_a_run_is_accepted(self, limited: RedisServer, policy: str) -> None:
        limited.client.config_set("maxmemory-policy", policy)
        ledger = Ledger.connect(Settings(redis_url=limited.url))
        ledger.redis.flushall()

        ledger.create_run(a_spec(), [a_shard("a"), a_shard("b")], now=1.0)
        ledger.complete(claimed(ledger, a_spec().run_id, a_shard("a")), a_receipt(a_spec().run_id, a_shard("a")))

        keys = ledger.redis.keys("shardsift:run*")
        assert len(keys) >= 5
        assert {ledger.redis.ttl(key) for key in keys} == {-1}, "such a server deletes keys with a time to live"

    def test_without_a_limit_of_memory_no_key_is_deleted(self, tmp_path: Path) -> None:
        with redis_server(tmp_path, "--maxmemory-policy", "allkeys-lru") as unlimited:
            Ledger.connect(Settings(redis_url=unlimited.url))
