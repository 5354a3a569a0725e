"""Wait for something that a user could see, instead of sleeping."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def wait_until(predicate: Callable[[], T], *, description: str, seconds: float = 60.0) -> T:
    """Return the first true value of `predicate`. Fails with the description if there is none in time."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if value := predicate():
            return value
        time.sleep(0.05)
    raise AssertionError(f"Waited {seconds:.0f} s in vain: {description}")
