"""The structure of the code: which package may import which. `lint-imports` checks the contracts in pyproject.toml."""

import ast
import json
import pkgutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import shardsift
import shardsift.fleet
import shardsift.producer

ROOT = Path(__file__).parents[2]


def modules(package: ModuleType) -> list[str]:
    found = pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
    return [package.__name__, *(module.name for module in found)]


LIGHT_SIDE = [*modules(shardsift.fleet), *modules(shardsift.producer)]
LOOK = ["cli", "opening", "status.watch", "status"]  # which is asked often
STATUS = [f"shardsift.producer.{name}" for name in LOOK]


@pytest.mark.parametrize(
    ("imported", "unwanted"),
    [
        pytest.param(
            LIGHT_SIDE, {"torch", "transformers", "sentence_transformers", "shardsift.worker"}, id="the light side"
        ),
        pytest.param(["shardsift.worker.cli", "shardsift.worker.app"], {"torch"}, id="the parent of a worker"),
        pytest.param(STATUS, {"numpy", "pyarrow", "duckdb", "huggingface_hub", "celery"}, id="a look at a run"),
        pytest.param(
            ["shardsift.worker.scoring.load"],
            {"celery", "redis", "shardsift.fleet", "shardsift.producer", "duckdb"},
            id="the scoring core",
            marks=pytest.mark.slow,  # it imports torch; lint-imports has the same contract
        ),
    ],
)
def test_an_import_does_not_bring_in_what_it_can_do_without(imported: list[str], unwanted: set[str]) -> None:
    assert newly_imported(imported) & unwanted == set()


def test_importing_the_public_api_imports_no_library() -> None:
    packages = {name.partition(".")[0] for name in newly_imported(["shardsift"])}

    assert packages - sys.stdlib_module_names == {"shardsift"}


def newly_imported(names: list[str]) -> set[str]:
    """The modules that a process has after it imported these, beyond those with which Python starts."""
    code = (
        f"import importlib, json, sys; before = set(sys.modules); [importlib.import_module(name) for name in {names}]; "
        "print(json.dumps(sorted(set(sys.modules) - before)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stdout))


def test_each_name_of_the_public_api_is_that_of_its_home() -> None:
    for name in shardsift.__all__:
        assert getattr(shardsift, name).__name__ == name


@pytest.mark.parametrize("folder", ["shardsift", "producer", "worker"])
def test_every_file_says_what_it_is(folder: str) -> None:
    files = sorted((ROOT / folder).rglob("*.py"))
    silent = [str(file) for file in files if not ast.get_docstring(ast.parse(file.read_text()))]

    assert files
    assert silent == []
