"""Every file of the packages that is not Python is in pyproject.toml as package data, so that a wheel has it."""

import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PATTERNS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]


@pytest.mark.parametrize("package", ["fleet", "producer", "shardsift", "worker"])
def test_a_wheel_has_every_file(package: str) -> None:
    folder = ROOT / package
    files = {file for file in folder.rglob("*") if file.is_file() and file.suffix not in (".py", ".pyc")}

    packed = {file for pattern in PATTERNS[package] for file in folder.glob(pattern)}

    assert files - packed == set()
