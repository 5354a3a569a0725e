"""Says what happens, and how long each step takes."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager


class Report:
    def __init__(self) -> None:
        self._steps: list[tuple[str, float]] = []

    @contextmanager
    def step(self, what: str) -> Iterator[None]:
        say(f"\n==> {what}")
        began = time.monotonic()
        yield
        seconds = time.monotonic() - began
        self._steps.append((what, seconds))
        say(f"    {seconds:.1f} s")

    def table(self) -> str:
        total = sum(seconds for _, seconds in self._steps)
        return "\n".join(f"{seconds:7.1f} s  {what}" for what, seconds in [*self._steps, ("in total", total)])


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()
