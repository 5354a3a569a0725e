"""An output of a run: in a folder, in buckets and on the Hub. What is promised of every output is tested with each."""

from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest

from hubserver import HubServer
from support.hub_fleet import used_here
from support.output_runs import Place
from support.outputs import Published

_numbers = count()


@pytest.fixture(scope="session")
def running_hub(hubs: Callable[[str], HubServer]) -> HubServer:
    """A hub with buckets, which need xet."""
    return hubs("xet")


@pytest.fixture
def bucket(running_hub: HubServer, tmp_path: Path) -> Iterator[str]:
    """A bucket of the Hub that this process uses. It does not exist yet."""
    with used_here(running_hub, tmp_path):
        yield f"hf://buckets/org/new-{next(_numbers)}"


@pytest.fixture
def empty(files: Published, tmp_path: Path) -> Place:
    return Place(files, tmp_path)


@pytest.fixture
def place(empty: Place) -> Place:
    """A place that the run has reserved."""
    return empty.reserve()
