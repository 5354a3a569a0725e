"""An output of a run: in a folder, in buckets and on the Hub. What is promised of every output is tested with each."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path

import fsspec
import pytest
from huggingface_hub import HfApi

from hubserver import HubServer
from support import hub_fleet
from support.hub_fleet import used_here
from support.output_runs import FILES, Place, PublishedOnHub
from support.outputs import Published

hubs = hub_fleet.hubs
_numbers = count()


@pytest.fixture(scope="session")
def running_hub(hubs: Callable[[str], HubServer]) -> HubServer:
    """A hub with buckets, which need xet."""
    return hubs("xet")


@pytest.fixture
def bucket(running_hub: HubServer, tmp_path: Path) -> Iterator[str]:
    """A bucket of the Hub that this process uses. It does not exist yet."""
    with used_here(running_hub, tmp_path):
        yield f"hf://buckets/org/out-{next(_numbers)}"


@pytest.fixture(params=[*FILES, "hub"])
def empty(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    """A new place of each kind."""
    uri, number = str(tmp_path / "out"), next(_numbers)
    match request.param:
        case "folder":
            yield Place(uri, Published(uri), tmp_path)
        case "memory":
            uri = f"memory://out-{number}"
            yield Place(uri, Published(uri), tmp_path)
            with suppress(FileNotFoundError):
                fsspec.filesystem("memory").rm(uri, recursive=True)
        case "bucket":
            uri = request.getfixturevalue("bucket")
            HfApi().create_bucket(uri)
            yield Place(uri, Published(uri), tmp_path)
        case "hub":
            hub, repo = request.getfixturevalue("hubs")("lfs"), f"org/out-{number}"
            hub.create_repo(repo)
            with used_here(hub, tmp_path):
                yield Place(f"hf://datasets/{repo}", PublishedOnHub(hub, repo), tmp_path)


@pytest.fixture
def place(empty: Place) -> Place:
    """A place that the run has reserved."""
    return empty.reserve()
