"""Redis as the compose file starts it, with the embedded server in place of the image's: only the password opens it."""

import shlex
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import redis

from shardsift.producer.local.redis import find_redis_server
from support.compose import (
    PASSWORD,
)
from support.waiting import wait_until

pytestmark = pytest.mark.slow


@pytest.fixture
def fleet_redis(services: dict[str, dict[str, Any]], tmp_path: Path) -> Iterator[tuple[psutil.Process, Path]]:
    """The server, started by the compose file's own shell lines, and its unix socket."""
    _store_password(tmp_path, PASSWORD)
    server = subprocess.Popen(_redis_command(services, tmp_path), cwd=tmp_path, stdout=subprocess.DEVNULL)
    socket = tmp_path / "redis.sock"
    try:
        wait_until(socket.exists, description="Redis to open its socket")
        yield psutil.Process(server.pid), socket
    finally:
        server.send_signal(signal.SIGKILL)
        server.wait(10)


def test_redis_accepts_only_clients_with_the_password(fleet_redis: tuple[psutil.Process, Path]) -> None:
    _, socket = fleet_redis

    with redis.Redis(unix_socket_path=str(socket), password=PASSWORD) as client:
        settings = client.config_get()
    with redis.Redis(unix_socket_path=str(socket)) as stranger, pytest.raises(redis.AuthenticationError):
        stranger.ping()

    assert settings["appendonly"] == "yes"
    assert settings["appendfsync"] == "everysec"
    assert settings["maxmemory-policy"] == "noeviction"
    assert settings["save"] == ""  # the log is enough


def test_redis_does_not_start_with_an_empty_password(services: dict[str, dict[str, Any]], tmp_path: Path) -> None:
    _store_password(tmp_path, "")

    answer = subprocess.run(
        _redis_command(services, tmp_path), cwd=tmp_path, capture_output=True, text=True, timeout=10
    )

    assert answer.returncode == 1
    assert "set REDIS_PASSWORD" in answer.stderr


def _store_password(folder: Path, password: str) -> None:
    (folder / "redis").mkdir()
    (folder / "redis/password").write_text(f"{password}\n")


def _redis_command(services: dict[str, dict[str, Any]], folder: Path) -> list[str]:
    shell, flags, script = services["redis"]["command"]
    here = shlex.join([find_redis_server(), "--port", "0", "--unixsocket", str(folder / "redis.sock")])
    return [shell, flags, _in_folder(script, folder).replace("valkey-server", here)]


def _in_folder(script: str, folder: Path) -> str:
    """The container's script, undoubling Compose's `$$`, with its paths moved to a folder of the test."""
    return (
        script.replace("$$", "$")
        .replace("/run/secrets/", f"{folder}/")
        .replace("/tmp/users.acl", f"{folder}/users.acl")
    )
