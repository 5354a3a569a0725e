"""Deque's axe-core, which finds faults of accessibility in a page: https://github.com/dequelabs/axe-core. Not fetched here."""

import os
from pathlib import Path

import pytest

from support.devtools import Tab
from support.pages import ROOT

_NAMED = "SHARDSIFT_TEST_AXE"
_INSTALLED = ROOT / "node_modules/axe-core/axe.min.js"
_RUN = """axe.run(document, {resultTypes: ["violations"]}).then((found) => found.violations.flatMap(
    (one) => one.nodes.map((node) => [one.impact, one.id, node.target.join(" "), node.failureSummary])))"""
_GRAVE = ("serious", "critical")


def axe_core() -> str:
    """The program. Skips the test if it is not here."""
    path = Path(os.environ.get(_NAMED, _INSTALLED))
    if _NAMED not in os.environ and not path.is_file():
        pytest.skip(f"no axe-core here: npm install --no-save axe-core, or name its axe.min.js in {_NAMED}")
    return path.read_text()


def grave_faults(tab: Tab, axe: str) -> list[str]:
    """The faults of the page that are serious or critical, each with its place and how to mend it."""
    tab.value(f"{axe}; undefined")
    return [f"{rule} at {place}: {how}" for impact, rule, place, how in tab.value(_RUN) if impact in _GRAVE]
