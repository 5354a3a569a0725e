"""The doctors tell, and producers check, which rights the user in REDIS_URL has. The users are those of ops/redis/users.acl."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from fleet.doctor.checks import Result
from fleet.doctor.services import redis_checks
from fleet.errors import UsageError
from fleet.ledger import Ledger
from fleet.ledger.connect import PRODUCER, WORKER, check_rights, connect, refused_commands
from fleet.process.settings import Settings
from producer.doctor import fleet_checks
from support.diagnoses import diagnosed, not_ok
from support.enqueued_runs import write
from support.processes import call_command
from support.proxy import proxied
from support.redis_servers import RedisServer, redis_server

USERS = Path(__file__).parents[3] / "ops/redis/users.acl"
OPERATOR_USER, WORKER_USER = "shardsift:replace-me-operator", "shardsift-worker:replace-me-worker"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    folder = tmp_path_factory.mktemp("redis")
    users = folder / "users.acl"
    users.write_text(f"{USERS.read_text()}user admin on >a-word ~* &* +@all\n")
    with redis_server(folder, "--aclfile", str(users)) as server:
        yield server


@pytest.fixture(scope="module")
def address(server: RedisServer) -> Iterator[str]:
    with proxied(server.socket) as (_, address):
        yield address


def settings_of(address: str, user: str) -> Settings:
    return Settings(redis_url=f"redis://{user}@{address}/0")


def keys_in(server: RedisServer) -> list[str]:
    name, password = OPERATOR_USER.split(":")
    found = redis.Redis(unix_socket_path=str(server.socket), username=name, password=password).keys("*")
    return [key.decode() for key in found]


def test_each_user_has_the_rights_of_its_role(server: RedisServer, address: str) -> None:
    operator = Ledger.connect(settings_of(address, OPERATOR_USER), role=PRODUCER).redis
    worker = Ledger.connect(settings_of(address, WORKER_USER), role=WORKER).redis

    assert refused_commands(operator, WORKER) == []
    assert refused_commands(worker, PRODUCER) != []
    assert keys_in(server) == []  # asking runs no command


def test_the_doctors_tell_which_user_lacks_rights(address: str) -> None:
    settings = settings_of(address, WORKER_USER)

    of_worker = diagnosed(redis_checks(settings, WORKER))
    of_producer = diagnosed([*redis_checks(settings, PRODUCER), *fleet_checks(settings)])

    assert of_worker["redis rights"].result is Result.OK
    assert not_ok(of_producer) == {"redis rights": Result.WRONG}
    assert "'shardsift-worker'" in of_producer["redis rights"].says
    assert "HKEYS" in of_producer["redis rights"].says
    assert "'shardsift' of ops/redis/users.acl" in of_producer["redis rights"].mend
    assert "workers" not in of_producer  # nothing is asked that this user may not ask


def test_a_user_without_rights_to_the_keys_or_the_database_is_told(server: RedisServer, address: str) -> None:
    admin = redis.Redis(unix_socket_path=str(server.socket), username="admin", password="a-word")
    admin.acl_setuser("stranger", enabled=True, passwords="+a-word", keys=["other:*"], categories=["+@all"])
    stranger = connect(settings_of(address, "stranger:a-word"))

    with pytest.raises(
        UsageError, match="The user 'stranger' of Redis may not run all .* a worker needs: EVAL, EVALSHA"
    ):
        check_rights(stranger, WORKER)
    with pytest.raises(UsageError, match="refuses the user in REDIS_URL .*'select'"):
        connect(Settings(redis_url=f"redis://{WORKER_USER}@{address}/1"))


def test_enqueueing_as_a_worker_is_refused_before_anything_is_written(
    server: RedisServer, address: str, tmp_path: Path
) -> None:
    (tmp_path / "in").mkdir()
    write(tmp_path / "in/a.parquet")
    options = ["--input", tmp_path / "in", "--model", "not/asked-for", "--output", tmp_path / "out"]

    done = call_command(
        *("producer", "enqueue", *options), environment={"REDIS_URL": settings_of(address, WORKER_USER).redis_url or ""}
    )

    assert done.returncode == 2
    assert "The user 'shardsift-worker' of Redis may not run" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not (tmp_path / "out").exists()
    assert keys_in(server) == []


@pytest.mark.parametrize(
    "command",
    [("status",), ("retry", "r"), ("finalizer",)],
)
def test_other_commands_of_producers_are_refused_too(address: str, command: tuple[str, ...]) -> None:
    environment = {"REDIS_URL": settings_of(address, WORKER_USER).redis_url or ""}

    done = call_command("producer", *command, environment=environment)

    assert done.returncode == 2
    assert "may not run all commands that a producer needs" in done.stderr


def test_an_autoscaler_may_have_the_user_of_its_workers(address: str) -> None:
    environment = {"REDIS_URL": settings_of(address, WORKER_USER).redis_url or ""}

    assert call_command("producer", "demand", environment=environment).returncode == 0
