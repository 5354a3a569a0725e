"""The newest torch that an installation takes is the one that the tests run. `make check` compares imports by deptry."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_ceiling_of_torch_is_the_version_after_the_one_that_the_tests_run() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    (pinned,) = re.findall(r"(?m)^torch==(\d+)\.(\d+)", (ROOT / "constraints.txt").read_text())
    (torch,) = (line for line in extras["worker"] if line.startswith("torch>"))

    assert torch.endswith(f"<{pinned[0]}.{int(pinned[1]) + 1}")
