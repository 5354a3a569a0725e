"""Every package that our code imports directly is declared in pyproject.toml, for the installation that imports it."""

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = ("shardsift", "shardsift/fleet", "producer", "worker")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]
# What is only imported if it is there, or in a function of the extra's own command.
ALSO = {
    "producer": [
        *EXTRAS["local"],
        *EXTRAS["tune"],
        *EXTRAS["estimate"],
        "ipython",
    ],  # in a notebook, whose kernel has it
    "worker": [
        *EXTRAS["worker"],
        *EXTRAS["sharded"],
        *EXTRAS["tune"],
        *EXTRAS["train"],
        *EXTRAS["demo"],
    ],
}


@pytest.mark.parametrize("folder", FOLDERS)
def test_every_direct_import_is_declared(folder: str) -> None:
    declared = {_name(line) for line in [*PROJECT["dependencies"], *ALSO.get(folder, [])]}
    distributions = packages_distributions()

    undeclared = {
        f"{module} in {file.relative_to(ROOT)}"
        for file in (ROOT / folder).rglob("*.py")
        for module in _imports(file)
        if not {_plain(name) for name in distributions.get(module, [module])} & declared
    }

    assert undeclared == set()


def test_the_ceiling_of_torch_is_the_version_after_the_one_that_the_tests_run() -> None:
    (pinned,) = re.findall(r"(?m)^torch==(\d+)\.(\d+)", (ROOT / "constraints.txt").read_text())
    (torch,) = (line for line in EXTRAS["worker"] if _name(line) == "torch")

    assert torch.endswith(f"<{pinned[0]}.{int(pinned[1]) + 1}")


def _imports(file: Path) -> Iterator[str]:
    """The top-level names of the packages that a file imports from elsewhere."""
    for node in ast.walk(ast.parse(file.read_text())):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module]
        yield from {name.partition(".")[0] for name in names} - {"shardsift"} - sys.stdlib_module_names


def _name(requirement: str) -> str:
    found = re.match(r"[A-Za-z0-9._-]+", requirement)
    assert found
    return _plain(found[0])


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
