"""Every file of the packages that is not Python is in pyproject.toml as package data, so that a wheel has it."""

import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
PATTERNS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]
FOLDERS = ("shardsift/fleet", "producer", "worker")


def test_a_wheel_has_every_file() -> None:
    files = {file for folder in FOLDERS for file in _files_below(ROOT / folder)}

    packed = {
        file.resolve()
        for package, patterns in PATTERNS.items()
        for pattern in patterns
        for file in ROOT.joinpath(*package.split(".")).glob(pattern)
    }

    assert files - packed == set()


def _files_below(folder: Path) -> set[Path]:
    return {file for file in folder.rglob("*") if file.is_file() and file.suffix not in (".py", ".pyc")}
