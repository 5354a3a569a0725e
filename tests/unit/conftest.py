"""`unit/` starts nothing: a test here that starts a process or loads torch fails. Its place is `integration/`."""

import subprocess
import sys
from multiprocessing.process import BaseProcess
from typing import NoReturn

import pytest


@pytest.fixture(autouse=True)
def _nothing_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subprocess.Popen, "__init__", _refuse)
    monkeypatch.setattr(BaseProcess, "start", _refuse)
    monkeypatch.setitem(sys.modules, "torch", None)  # makes `import torch` an error


def _refuse(*_: object, **__: object) -> NoReturn:
    pytest.fail("A test in unit/ starts a process. Move it to integration/.")
