"""A Redis without Docker, as ops/redis/README.md sets it up: both doctors are content with it."""

import os
import stat
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import redis

from shardsift.fleet.checks import redis_check
from shardsift.fleet.process.children import running
from shardsift.fleet.process.settings import Settings
from shardsift.producer.local.redis import find_redis_server
from support.diagnoses import diagnosed, not_ok
from support.machine_files import OPS
from support.pages import texts_of
from support.ports import unused_port
from support.waiting import wait_until

pytestmark = pytest.mark.slow

GUIDE, CONF, USERS = OPS / "redis/README.md", OPS / "redis/shardsift.conf", OPS / "redis/users.acl"
SUDO = '#!/bin/sh\nexec "$@"\n'


@dataclass(frozen=True)
class Machine:
    """`etc` is its /etc, with the files that the guide makes."""

    etc: Path
    port: int

    def settings(self, name: str) -> Settings:
        """Those of a process that uses the user `shardsift` (operator) or `shardsift-worker` (worker)."""
        user = {"operator": "shardsift", "worker": "shardsift-worker"}[name]
        return Settings(
            redis_url=f"redis://{user}@127.0.0.1:{self.port}/0",
            redis_password_file=self.etc / f"shardsift/redis_password_{name}",
        )


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    """The guide's own lines make the passwords, and the server reads the configuration as the guide includes it."""
    folder = tmp_path_factory.mktemp("machine")
    etc = folder / "etc"
    (etc / "redis").mkdir(parents=True)
    (folder / "sudo").write_text(SUDO)
    (folder / "sudo").chmod(0o755)
    for file in (CONF, USERS):
        (etc / "redis" / file.name).write_text(file.read_text().replace("/etc/", f"{etc}/"))
    (make_passwords,) = [block for block in texts_of(GUIDE, "sh") if "openssl" in block]
    subprocess.run(
        ["sh", "-eu", "-c", make_passwords.replace("/etc/", f"{etc}/")],
        env={"PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"},
        check=True,
        timeout=30,
    )
    port = unused_port()
    main = etc / "redis/redis.conf"  # a distribution's settings, which the included ones replace
    main.write_text(
        f"dir {folder}\nbind 0.0.0.0\nsave 3600 1\nappendonly no\nmaxmemory-policy allkeys-lru\n"
        f"include {etc}/redis/shardsift.conf\nport {port}\n"
    )
    with running([find_redis_server(), str(main)], log=folder / "log", stop_seconds=10):
        wait_until(lambda: is_up(port), description="Redis listens")
        yield Machine(etc, port)


def is_up(port: int) -> bool:
    with redis.Redis(port=port) as client:
        try:
            return bool(client.ping())
        except redis.AuthenticationError:
            return True
        except redis.ConnectionError:
            return False


@pytest.mark.parametrize("user", ["operator", "worker"])
def test_the_doctors_have_no_warning_about_it(machine: Machine, user: str) -> None:
    found = diagnosed([redis_check(machine.settings(user))])

    assert not_ok(found) == {}
    assert "AOF is on" in found["redis"].says


def test_only_the_two_users_enter_and_the_server_has_no_password_in_clear(machine: Machine) -> None:
    with redis.Redis(port=machine.port) as stranger, pytest.raises(redis.AuthenticationError):
        stranger.ping()

    for name in ("operator", "worker"):
        password = machine.etc / f"shardsift/redis_password_{name}"
        assert stat.S_IMODE(password.stat().st_mode) == 0o600
        assert len(password.read_text()) == 48
        assert password.read_text() not in (machine.etc / "redis/users.acl").read_text()
    assert "replace-me" not in (machine.etc / "redis/users.acl").read_text()
