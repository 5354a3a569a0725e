"""Flower as a process of a fleet, with a login."""

import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

from shardsift.fleet.process.children import Child
from support.fleet import Fleet
from support.processes import started
from support.waiting import wait_until

LOGIN = "me:a-password"


@contextmanager
def flower_of(fleet: Fleet, port: int) -> Iterator[str]:
    """Run Flower during the block. Yields its address, once it answers."""
    with flower_process(fleet, port) as (_, address):
        yield address


@contextmanager
def flower_process(fleet: Fleet, port: int) -> Iterator[tuple[Child, str]]:
    """Run Flower during the block. Yields the process and its address, once it answers."""
    address, environment = f"http://127.0.0.1:{port}", {**fleet.environment, "SHARDSIFT_FLOWER_AUTH": LOGIN}
    with started("producer", "flower", "--port", str(port), environment=environment, log=fleet.log("flower")) as child:
        wait_until(lambda: _answers(address), description="Flower answers")
        yield child, address


def _answers(address: str) -> bool:
    try:
        with urllib.request.urlopen(f"{address}/healthcheck", timeout=10):
            return True
    except OSError:
        return False
