"""Flower as a process of a fleet, with a login."""

import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

from support.browser import LOGIN
from support.fleet import Fleet
from support.processes import started
from support.waiting import wait_until


@contextmanager
def flower_of(fleet: Fleet, port: int) -> Iterator[str]:
    """Its address, as soon as it answers."""
    address, environment = f"http://127.0.0.1:{port}", {**fleet.environment, "SHARDSIFT_FLOWER_AUTH": LOGIN}
    with started("producer", "flower", "--port", str(port), environment=environment, log=fleet.log("flower")):
        wait_until(lambda: _answers(address), description="Flower answers")
        yield address


def _answers(address: str) -> bool:
    try:
        with urllib.request.urlopen(f"{address}/healthcheck", timeout=10):
            return True
    except OSError:
        return False
