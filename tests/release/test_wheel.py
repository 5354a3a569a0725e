"""The wheel in dist/ has all that the commands need and nothing else, and works without the tree. Part of `make test-wheel`."""

import email
import json
import os
import re
import shlex
import subprocess
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from support.fleet import Fleet
from support.own_modules import SAYS, folder_of_a_user
from support.pages import ROOT, texts_of
from support.processes import PROGRAMS, commands

pytestmark = pytest.mark.wheel

PYTHONS = ("3.11", "3.12", "3.13")
LICENSES = {"LICENSE", "LICENSE-PSF"}


@dataclass(frozen=True, kw_only=True)
class Installed:
    """An environment that has the wheel. Its commands run in an empty folder, without a setting of this process."""

    bin: Path
    folder: Path

    def run(self, *command: str | Path, seconds: float = 120, **settings: str) -> subprocess.CompletedProcess[str]:
        self.folder.mkdir(exist_ok=True)
        environment = {"PATH": f"{self.bin}:{os.environ['PATH']}", "HOME": str(self.folder), "LANG": "C.UTF-8"}
        return subprocess.run(
            [str(self.bin / command[0]), *map(str, command[1:])],
            cwd=self.folder,
            env=environment | settings,
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )


@pytest.fixture(scope="session")
def wheel() -> Path:
    (wheel,) = (ROOT / "dist").glob("*.whl")
    return wheel


@pytest.fixture(scope="session")
def installed(wheel: Path) -> Iterator[Callable[[str], Installed]]:
    """The wheel on a Python: on the first with what the README's first run needs, on the others the light side."""

    @cache
    def install(python: str) -> Installed:
        folder = Path(place, python)
        # pyenv's python3.X starts only if its version is selected.
        made = _finished("env", f"PYENV_VERSION={python}", f"python{python}", "-m", "venv", folder / "venv")
        if made.returncode and os.environ.get("CI") != "true":
            pytest.skip(f"python{python} makes no environment: {made.stderr}")
        assert made.returncode == 0, made.stderr
        package = first_run()[0] if python == PYTHONS[0] else "shardsift"
        pip = (folder / "venv/bin/pip", "install", "--quiet", "--constraint", ROOT / "constraints.txt")
        done = _finished(*pip, f"{package} @ {wheel.as_uri()}")
        assert done.returncode == 0, done.stderr
        return Installed(bin=folder / "venv/bin", folder=folder / "empty")

    with TemporaryDirectory(prefix="wheel-") as place:  # deleted, because pytest would keep gigabytes of torch
        yield install


def first_run() -> tuple[str, list[str]]:
    """What the README's `uvx` line installs, and the command that it runs."""
    lines = [line for text in texts_of("README.md", "sh") for line in text.splitlines() if line.startswith("uvx ")]
    ((_uvx, _from, package, *command),) = [shlex.split(line, comments=True) for line in lines]
    return package, command


def _finished(*command: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)


def test_the_wheel_has_the_files_of_the_packages_and_no_other(wheel: Path) -> None:
    own, linked = (
        _finished("git", "-C", ROOT, "ls-files", *folders).stdout.split()
        for folders in (("shardsift/*.py", "shardsift/*.lua", "shardsift/py.typed"), ("producer", "worker"))
    )
    tracked = [*own, *(f"shardsift/{name}" for name in linked)]

    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        naming_this_machine = [name for name in names if str(ROOT).encode() in archive.read(name)]

    info = f"{wheel.name.removesuffix('-py3-none-any.whl')}.dist-info"
    about = {"METADATA", "RECORD", "WHEEL", "entry_points.txt", "top_level.txt"} | {f"licenses/{n}" for n in LICENSES}
    assert names == {*tracked, *(f"{info}/{name}" for name in about)}
    assert naming_this_machine == []


def test_the_metadata_of_the_wheel_is_complete(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        metadata = email.message_from_bytes(archive.read(name))

    classifiers = metadata.get_all("Classifier", [])
    assert [metadata["Version"]] == re.findall(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)[:1]
    assert metadata["License-Expression"] == "Apache-2.0 AND PSF-2.0"
    assert set(metadata.get_all("License-File", [])) == LICENSES
    assert metadata["Requires-Python"] == f">={PYTHONS[0]}"
    assert {f"Programming Language :: Python :: {python}" for python in PYTHONS} <= set(classifiers)
    assert any(classifier.startswith("Topic :: ") for classifier in classifiers)
    assert metadata["Description-Content-Type"] == "text/markdown"
    assert {url.partition(",")[0] for url in metadata.get_all("Project-URL", [])} >= {"Source", "Issues", "Changelog"}
    assert metadata["Keywords"]
    assert metadata["Summary"]


@pytest.mark.parametrize("python", PYTHONS)
def test_every_command_shows_its_help(installed: Callable[[str], Installed], python: str) -> None:
    paths = [path for program in PROGRAMS for path in commands(program)]

    helps = [installed(python).run(*path, "--help") for path in paths]

    assert len(paths) > 20
    assert [(done.args, done.stderr) for done in helps if done.returncode or "Usage: " not in done.stdout] == []


@pytest.mark.parametrize("python", PYTHONS)
def test_a_run_is_enqueued_from_the_wheel(
    installed: Callable[[str], Installed], python: str, fleet: Fleet, shards: Path, tmp_path: Path
) -> None:
    model = tmp_path / "classifier"
    model.mkdir()
    config = {"architectures": ["BertForSequenceClassification"], "num_labels": 1}
    (model / "config.json").write_text(json.dumps(config))
    options = ("--input", shards, "--model", model, "--output", tmp_path / "out", "--keep-all")

    sent = installed(python).run("producer", "enqueue", *options, REDIS_URL=fleet.redis_url)
    status = installed(python).run("producer", "status", sent.stdout.strip(), REDIS_URL=fleet.redis_url)

    assert sent.returncode == 0, sent.stderr
    assert status.returncode == 3, status.stderr  # no worker has scored it


def test_each_public_function_works_beside_a_users_modules_of_our_names(
    installed: Callable[[str], Installed], fleet: Fleet, shards: Path, tmp_path: Path
) -> None:
    machine, model = replace(installed(PYTHONS[0]), folder=folder_of_a_user(tmp_path, shards)), tmp_path / "model"
    settings = {"REDIS_URL": fleet.redis_url, "HF_HUB_OFFLINE": "1", "SHARDSIFT_PARITY_ROWS": "0"}
    make = "import sys, pathlib, support.models; support.models.tiny_classifier(pathlib.Path(sys.argv[1]))"
    made = machine.run("python", "-P", "-c", make, model, seconds=300, PYTHONPATH=str(ROOT / "tests"))
    assert made.returncode == 0, made.stderr

    done = machine.run("python", "script.py", model, seconds=600, **settings)

    assert (done.returncode, done.stdout) == (0, SAYS), done.stderr
    assert not (tmp_path / "imported").exists()


def test_the_first_run_of_the_readme_works_without_the_tree(installed: Callable[[str], Installed]) -> None:
    _, command = first_run()

    done = installed(PYTHONS[0]).run(*command, seconds=900, HF_HUB_OFFLINE="1")

    assert done.returncode == 0, done.stderr
    assert "Identical, file by file." in done.stdout
