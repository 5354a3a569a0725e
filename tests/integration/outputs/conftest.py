"""An output of a run: in a folder, in buckets and on the Hub. What is promised of every output is tested with each."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path

import fsspec
import pytest
from huggingface_hub import HfApi, close_session, constants

from hubserver import HubServer
from support.output_runs import FILES, Place, PublishedOnHub
from support.outputs import Published

_numbers = count()
_FILE = constants.HUGGINGFACE_CO_URL_TEMPLATE.removeprefix(constants.ENDPOINT)
HUB = pytest.param("hub", marks=pytest.mark.filterwarnings("ignore:Use 'content:DeprecationWarning"))  # of its client


@pytest.fixture(scope="session")
def running_hub() -> Iterator[HubServer]:
    """A hub with buckets, which need xet."""
    with HubServer(xet=True) as hub:
        yield hub


@pytest.fixture(scope="session")
def lfs_hub() -> Iterator[HubServer]:
    with HubServer(xet=False) as hub:
        yield hub


@contextmanager
def used_here(hub: HubServer, cache: Path) -> Iterator[None]:
    """Have this process use a hub."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(constants, "ENDPOINT", hub.endpoint)
        patch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", hub.endpoint + _FILE)
        patch.setattr(constants, "HF_HUB_OFFLINE", False)
        patch.setattr(constants, "HF_HUB_DISABLE_XET", not hub.xet)
        patch.setenv("HF_TOKEN", hub.token())
        patch.setenv("HF_XET_CACHE", str(cache / "xet"))
        close_session()
        yield
    close_session()
    assert hub.handler_errors == []
    assert hub.faults_left == 0


@pytest.fixture
def bucket(running_hub: HubServer, tmp_path: Path) -> Iterator[str]:
    """A bucket of the Hub that this process uses. It does not exist yet."""
    with used_here(running_hub, tmp_path):
        yield f"hf://buckets/org/out-{next(_numbers)}"


@pytest.fixture(params=[*FILES, HUB])
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
            hub, repo = request.getfixturevalue("lfs_hub"), f"org/out-{number}"
            hub.create_repo(repo)
            with used_here(hub, tmp_path):
                yield Place(f"hf://datasets/{repo}", PublishedOnHub(hub, repo), tmp_path)


@pytest.fixture
def place(empty: Place) -> Place:
    """A place that the run has reserved."""
    return empty.reserve()
