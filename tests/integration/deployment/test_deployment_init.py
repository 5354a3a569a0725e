"""What the service `init` makes, by its own script. Who owns the files is left to `make test-containers`."""

import configparser
import os
import subprocess
from pathlib import Path

import pytest

from support.compose import INIT, PASSWORD

pytestmark = pytest.mark.slow

REDIS_URL = "redis://10.0.0.5:6379/0"
SECRETS = (
    "redis_password",
    "flower_login",
    "grafana_password",
    "hf_token",
    "aws_access_key_id",
    "aws_secret_access_key",
    "aws_session_token",
)
MADE = {"redis/password", "flower/login", "grafana/password"}  # without any variable
STAND_INS = {
    "chown": 'echo "chown $*" >> "$LOG"',
    "chgrp": 'echo "chgrp $*" >> "$LOG"',
    "stat": 'echo "$OWNER"',
}


class Machine:
    """The folders that the container sees. Nothing changes its owner, since the tests may not be root."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.secrets, self.volumes = folder / "secrets", folder / "volumes"
        for path in (
            self.secrets,
            folder / "data",
            folder / "bin",
            *map(self.volumes.joinpath, ("redis", "flower", "grafana", "tokens", "monitoring")),
        ):
            path.mkdir(parents=True)
        for name, script in STAND_INS.items():
            (folder / "bin" / name).write_text(f"#!/bin/sh\n{script}\n")
            (folder / "bin" / name).chmod(0o755)
        self.log = folder / "log"
        self.log.touch()
        self._script = (
            INIT.read_text()
            .replace("/run/secrets/$1", f"{self.secrets}/$1")
            .replace("/volumes/", f"{self.volumes}/")
            .replace("/settings/", f"{INIT.parents[1]}/")
            .replace(" /data", f" {folder}/data")
        )

    def init(self, *, redis_url: str = "", owner: int = 1000, **given: str) -> subprocess.CompletedProcess[str]:
        for name in SECRETS:
            (self.secrets / name).write_text(given.get(name, "unset"))
        return subprocess.run(
            ["sh", "-c", self._script],
            env={
                "PATH": f"{self.folder}/bin:{os.defpath}",
                "REDIS_URL": redis_url,
                "OWNER": str(owner),
                "LOG": str(self.log),
            },
            capture_output=True,
            text=True,
            timeout=10,
            check=False,
        )

    def stored(self) -> dict[str, str]:
        """The secrets."""
        volumes = (folder for folder in self.volumes.iterdir() if folder.name != "monitoring")
        files = (path for folder in volumes for path in folder.rglob("*") if path.is_file())
        return {str(path.relative_to(self.volumes)): path.read_text().removesuffix("\n") for path in files}


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_prometheus_and_grafana_may_read_their_settings_whatever_the_clone_allows(machine: Machine) -> None:
    machine.init()
    assert machine.init().returncode == 0

    folder = machine.volumes / "monitoring"
    parts = ("", "datasources", "dashboards", "shown")
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    assert {(folder / part).stat().st_mode & 0o777 for part in parts} == {0o755}
    assert {file.stat().st_mode & 0o777 for file in files} == {0o444}
    assert {str(file.relative_to(folder)) for file in files} == {
        "prometheus.yml",
        "alerts.yml",
        "datasources/shardsift.yml",
        "dashboards/shardsift.yml",
        "shown/shardsift.json",
    }


def test_the_first_start_makes_a_password_and_a_login_and_the_next_keeps_them(machine: Machine) -> None:
    first = machine.init()
    made = machine.stored()
    second = machine.init()

    assert (first.returncode, first.stderr, second.returncode) == (0, "", 0)
    assert set(made) == MADE
    assert (len(made["redis/password"]), len(made["grafana/password"])) == (48, 48)
    assert made["flower/login"].startswith("shardsift:")
    assert len({value.rpartition(":")[2] for value in made.values()}) == 3
    assert machine.stored() == made
    assert not set(made.values()) & set(first.stdout.split())


def test_a_secret_of_the_shell_replaces_the_stored_one_which_stays_without_it(machine: Machine) -> None:
    machine.init(hf_token="hf_old", redis_password="old", flower_login="me:old", grafana_password="old")

    machine.init(hf_token="hf_new", redis_password=PASSWORD, flower_login="me:new", grafana_password="new")
    machine.init()

    assert machine.stored() == {
        "redis/password": PASSWORD,
        "flower/login": "me:new",
        "grafana/password": "new",
        "tokens/hf_token": "hf_new",
    }
    modes = {name: oct((machine.volumes / name).stat().st_mode & 0o777) for name in machine.stored()}
    assert set(modes.values()) == {"0o440"}


def test_an_empty_variable_counts_as_none(machine: Machine) -> None:
    machine.init(hf_token="", aws_access_key_id="", redis_password="")

    assert set(machine.stored()) == MADE


@pytest.mark.parametrize("session", ["unset", "a/session+token=="])
def test_the_keys_of_aws_become_a_file_that_its_libraries_read(machine: Machine, session: str) -> None:
    machine.init(aws_access_key_id="AKIA", aws_secret_access_key="a/key+%s", aws_session_token=session)

    read = configparser.RawConfigParser()
    read.read_string(machine.stored()["tokens/aws_credentials"])

    assert dict(read["default"]) == {
        "aws_access_key_id": "AKIA",
        "aws_secret_access_key": "a/key+%s",
        **({} if session == "unset" else {"aws_session_token": session}),
    }


def test_a_machine_that_joins_needs_the_password(machine: Machine) -> None:
    without = machine.init(redis_url=REDIS_URL)
    stored = machine.stored()
    with_it = machine.init(redis_url=REDIS_URL, redis_password=PASSWORD)
    later = machine.init(redis_url=REDIS_URL)

    assert (without.returncode, stored) == (1, {})
    assert "Set REDIS_PASSWORD too" in without.stderr
    assert (with_it.returncode, later.returncode) == (0, 0)
    assert machine.stored()["redis/password"] == PASSWORD


def test_a_password_in_the_url_is_enough(machine: Machine) -> None:
    answer = machine.init(redis_url="rediss://worker:secret@redis.example:6380/0")

    assert answer.returncode == 0
    assert machine.stored()["redis/password"] == ""


@pytest.mark.parametrize(
    ("owner", "done"), [(1000, []), (0, ["chown 1000:1000 {data}"]), (1001, ["chgrp 1000 {data}"])]
)
def test_the_data_folder_is_handed_to_the_user_of_the_containers(machine: Machine, owner: int, done: list[str]) -> None:
    machine.init(owner=owner)

    data = machine.folder / "data"
    assert [line for line in machine.log.read_text().splitlines() if line.endswith("data")] == [
        line.format(data=data) for line in done
    ]


def test_a_data_folder_that_cannot_be_changed_stops_nothing(machine: Machine) -> None:
    refusing = "#!/bin/sh\ncase $2 in */data) echo refused >&2; exit 1 ;; esac\n"
    (machine.folder / "bin/chown").write_text(refusing)

    answer = machine.init(owner=0)

    assert answer.returncode == 0
    assert "Cannot change who may write to ./data" in answer.stderr
    assert set(machine.stored()) == MADE
