"""The structure of the code: which package may import which. `lint-imports` checks the contracts in pyproject.toml."""

import ast
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

import fleet
import producer
import shardsift
import worker

ROOT = Path(__file__).parents[2]
PACKAGES = {"fleet": fleet, "producer": producer, "shardsift": shardsift, "worker": worker}


def modules(package: str) -> list[str]:
    return [package, *(found.name for found in pkgutil.walk_packages(PACKAGES[package].__path__, f"{package}."))]


def test_no_module_of_the_light_side_brings_torch_in() -> None:
    names = [*modules("fleet"), *modules("producer")]
    code = (
        f"import sys, importlib; [importlib.import_module(name) for name in {names}]; "
        "sys.exit(', '.join(sorted({'torch', 'transformers', 'sentence_transformers', 'worker'} & set(sys.modules))) or 0)"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr


def test_a_look_at_a_run_loads_no_data_library() -> None:
    """They take a second to load, and `producer status` is asked often."""
    code = (
        "import sys, producer.cli, producer.opening, producer.status.watch, producer.status; "
        "sys.exit(', '.join(sorted({'numpy', 'pyarrow', 'duckdb', 'huggingface_hub', 'celery'} & set(sys.modules))) or 0)"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr


def test_importing_the_public_api_imports_no_library() -> None:
    code = (
        "import sys; before = set(sys.modules); import shardsift; "
        "new = {name.partition('.')[0] for name in set(sys.modules) - before} - sys.stdlib_module_names; "
        "sys.exit(', '.join(sorted(new - {'shardsift'})) or 0)"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr


def test_each_name_of_the_public_api_is_that_of_its_home() -> None:
    for name in shardsift.__all__:
        assert getattr(shardsift, name).__name__ == name


@pytest.mark.slow  # it imports torch; lint-imports has the same contract
def test_the_scoring_core_can_be_used_without_the_fleet() -> None:
    code = (
        "import sys; from worker.scoring.load import load_scorer; "
        "sys.exit(', '.join(sorted({'celery', 'redis', 'fleet', 'producer', 'duckdb'} & set(sys.modules))) or 0)"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("package", PACKAGES)
def test_every_file_says_what_it_is(package: str) -> None:
    files = sorted((ROOT / package).rglob("*.py"))
    silent = [str(file) for file in files if not ast.get_docstring(ast.parse(file.read_text()))]

    assert files
    assert silent == []
