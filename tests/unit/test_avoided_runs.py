"""A worker leaves runs that it has no access to, to others, and looks again after ten minutes."""

import time

import pytest

from worker.service.avoided import AvoidedRuns


def test_a_run_is_avoided_for_ten_minutes(monkeypatch: pytest.MonkeyPatch) -> None:
    avoided = AvoidedRuns()
    now = time.monotonic()

    avoided.add("edu-1a")

    found = {}
    for minutes in (0, 9, 11):
        monkeypatch.setattr(time, "monotonic", lambda seconds=60 * minutes: now + seconds)
        found[minutes] = ("edu-1a" in avoided, "edu-2b" in avoided)
    assert found == {0: (True, False), 9: (True, False), 11: (False, False)}
