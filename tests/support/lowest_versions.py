"""Print constraints for the lowest versions that pyproject.toml allows, for `make test-lowest`. Needs only Python.

torch stays at the version of constraints.txt, because its older wheels bring gigabytes of CUDA. For packages without a lower
bound, pip takes the newest version that fits the others.
"""

import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
_AT_ITS_PIN = "torch"


def lowest_versions(project: dict[str, object], pins: dict[str, str]) -> Iterator[str]:
    """Yield `name==version` for each direct dependency, without duplicates."""
    seen = set()
    for requirement in _requirements(project):
        name = re.split(r"[^A-Za-z0-9_.-]", requirement, maxsplit=1)[0]
        key = _normalized(name)
        if key in seen:
            continue
        seen.add(key)
        bound = re.search(r">=\s*([0-9][^,;\s]*)", requirement)
        if key == _AT_ITS_PIN:
            yield f"{name}=={pins[key]}"
        elif bound:
            yield f"{name}=={bound[1]}"


def pinned(constraints: str) -> dict[str, str]:
    """Parse constraints. Returns versions by normalized name."""
    return {_normalized(name): version for name, version in re.findall(r"^([\w.-]+)==(\S+)", constraints, re.MULTILINE)}


def _requirements(project: dict[str, object]) -> Iterator[str]:
    """Yield all requirements, those with a lower bound first. Extras may name a package again without its bounds."""
    extras = project["optional-dependencies"]
    assert isinstance(extras, dict)
    listed = [*project["dependencies"], *(one for extra in extras.values() for one in extra)]  # type: ignore[misc]
    yield from sorted(listed, key=lambda requirement: ">=" not in requirement)


def _normalized(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


if __name__ == "__main__":
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    pins = pinned((ROOT / "constraints.txt").read_text())
    sys.stdout.writelines(f"{line}\n" for line in lowest_versions(declared, pins))
