"""Packages of examples/ that offer a scorer, as pip installs them."""

import os
import shutil
import sys
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@contextmanager
def installed(example: Path, folder: Path) -> Iterator[None]:
    """Install an example's package into a folder, for this process and the processes that it starts."""
    settings = tomllib.loads((example / "pyproject.toml").read_text())
    package, (module,) = settings["project"], settings["tool"]["setuptools"]["packages"]
    entry_points = "\n".join(
        f"[{group}]\n" + "\n".join(f"{name} = {value}" for name, value in points.items())
        for group, points in package["entry-points"].items()
    )
    info = folder / f"{module}-{package['version']}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package['name']}\nVersion: {package['version']}\n")
    (info / "entry_points.txt").write_text(entry_points)
    shutil.copytree(example / module, folder / module)
    inherited = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        patch.setenv("PYTHONPATH", os.pathsep.join([str(folder), str(ROOT), *inherited]))
        yield
    for name in [name for name in sys.modules if name.partition(".")[0] == module]:
        del sys.modules[name]
