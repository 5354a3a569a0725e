"""Time that a part of a benchmark takes: on the clock, and of the CPU by all threads of this process."""

import time
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Spent:
    """Other load on the machine hardly changes `cpu_seconds`."""

    seconds: float = 0.0
    cpu_seconds: float = 0.0

    def __add__(self, other: "Spent") -> "Spent":
        return Spent(seconds=self.seconds + other.seconds, cpu_seconds=self.cpu_seconds + other.cpu_seconds)

    def __sub__(self, other: "Spent") -> "Spent":
        return Spent(seconds=self.seconds - other.seconds, cpu_seconds=self.cpu_seconds - other.cpu_seconds)


def spent() -> Spent:
    """By this process until now; the difference of two is what lay between."""
    return Spent(seconds=time.perf_counter(), cpu_seconds=time.process_time())
