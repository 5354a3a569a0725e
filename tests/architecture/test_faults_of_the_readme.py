"""The README and the page that it links count the faults that the storms' reports have."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_readme_and_the_page_that_it_links_count_the_same_faults() -> None:
    storms = [(ROOT / f"chaos/results/2026-11-22-seed-{seed}.txt").read_text() for seed in range(2041, 2045)]
    faults = [int(found) for storm in storms for found in re.findall(r"^(\d+) faults in all", storm, re.MULTILINE)]

    (readme,) = re.findall(r"([\d,]+) faults injected in four storms", (ROOT / "README.md").read_text())
    (page,) = re.findall(r"\*\*in all\*\* \| \*\*([\d,]+)\*\*", (ROOT / "docs/reliability.md").read_text())

    assert readme == page == f"{sum(faults):,}"
