"""A worker leaves runs that it has no access to, to others, and looks again after ten minutes."""

import time
from typing import Any

import pytest

from fleet.process.settings import Settings
from worker.service.child import Child


def test_a_run_is_avoided_for_ten_minutes(monkeypatch: pytest.MonkeyPatch) -> None:
    nothing: Any = None
    child = Child(Settings(), {}, nothing, nothing)
    now = time.monotonic()

    child.avoid("edu-1a")

    found = {}
    for minutes in (0, 9, 11):
        monkeypatch.setattr(time, "monotonic", lambda seconds=60 * minutes: now + seconds)
        found[minutes] = (child.avoids("edu-1a"), child.avoids("edu-2b"))
    assert found == {0: (True, False), 9: (True, False), 11: (False, False)}
