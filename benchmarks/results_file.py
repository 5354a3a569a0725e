"""The results file of a benchmark: what was measured, where, when and by which command."""

import json
import shlex
import sys
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path

from benchmarks.ledger.machine import Provenance, machine_slug, provenance


def provenance_of(module: str) -> Provenance:
    """This machine now, and the command `python -m <module>` with its arguments."""
    return replace(provenance(), command=shlex.join(["python", "-m", module, *sys.argv[1:]]))


def write_results(case: str, found: Provenance, report: Mapping[str, object], folder: Path) -> Path:
    """Write `<date>-<machine>-<case>.json`. Overwrites a file of the same day."""
    file = folder / f"{found.date.split()[0]}-{machine_slug(found)}-{case}.json"
    file.write_text(json.dumps({"provenance": asdict(found), **report}, indent=1) + "\n")
    return file
