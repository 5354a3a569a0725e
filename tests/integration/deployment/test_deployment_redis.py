"""Redis as the compose file starts it, with the embedded server in place of the image's: only the password opens it."""

import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from shardsift.producer.local.redis import find_redis_server
from support.compose import PASSWORD
from support.waiting import wait_until

pytestmark = pytest.mark.slow


@pytest.fixture
def socket(services: dict[str, dict[str, Any]], tmp_path: Path) -> Iterator[Path]:
    """The unix socket of the server, which the compose file's own shell lines have started."""
    command = redis_command(services, tmp_path, PASSWORD)
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL) as server:
        try:
            wait_until((tmp_path / "redis.sock").exists, description="Redis to open its socket")
            yield tmp_path / "redis.sock"
        finally:
            server.kill()


def test_redis_accepts_only_clients_with_the_password(socket: Path) -> None:
    with redis.Redis(unix_socket_path=str(socket), password=PASSWORD) as client:
        settings = client.config_get()
    with redis.Redis(unix_socket_path=str(socket)) as stranger, pytest.raises(redis.AuthenticationError):
        stranger.ping()

    assert settings["appendonly"] == "yes"
    assert settings["appendfsync"] == "everysec"
    assert settings["maxmemory-policy"] == "noeviction"
    assert settings["save"] == ""  # the log is enough


def test_redis_does_not_start_with_an_empty_password(services: dict[str, dict[str, Any]], tmp_path: Path) -> None:
    command = redis_command(services, tmp_path, "")

    answer = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=10)

    assert answer.returncode == 1
    assert "set REDIS_PASSWORD" in answer.stderr


def redis_command(services: dict[str, dict[str, Any]], folder: Path, password: str) -> list[str]:
    """The container's command, undoubling Compose's `$$`, with its paths moved to a folder of the test."""
    (folder / "redis").mkdir()
    (folder / "redis/password").write_text(f"{password}\n")
    shell, flags, script = services["redis"]["command"]
    server = shlex.join([find_redis_server(), "--port", "0", "--unixsocket", str(folder / "redis.sock")])
    script = script.replace("$$", "$").replace("/run/secrets/", f"{folder}/")
    return [shell, flags, script.replace("/tmp/users.acl", f"{folder}/users.acl").replace("valkey-server", server)]
