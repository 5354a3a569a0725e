"""What the service `init` makes, by its own script. Who owns the files, and what a machine that joins must
know, is left to `make test-containers`.
"""

import os
import subprocess
from pathlib import Path

import pytest

from support.compose import INIT, PASSWORD

pytestmark = pytest.mark.slow

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
STAND_INS = {"chown": "true", "chgrp": "true", "stat": "echo 1000"}


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
        self._script = (
            INIT.read_text()
            .replace("/run/secrets/$1", f"{self.secrets}/$1")
            .replace("/volumes/", f"{self.volumes}/")
            .replace("/settings/", f"{INIT.parents[1]}/")
            .replace(" /data", f" {folder}/data")
        )

    def init(self, **given: str) -> subprocess.CompletedProcess[str]:
        for name in SECRETS:
            (self.secrets / name).write_text(given.get(name, "unset"))
        return subprocess.run(
            ["sh", "-c", self._script],
            env={"PATH": f"{self.folder}/bin:{os.defpath}", "REDIS_URL": ""},
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
