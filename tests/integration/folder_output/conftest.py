"""An output of a run, in a folder and in buckets."""

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import fsspec
import pytest
from huggingface_hub import HfApi, close_session, constants

from hubserver import HubServer
from shardsift.fleet.storage.folder import FolderOutput
from support.folder_runs import RUN, SPEC

_numbers = count()


@pytest.fixture(scope="session")
def running_hub() -> Iterator[HubServer]:
    with HubServer(xet=True) as hub:
        yield hub


@pytest.fixture
def bucket(running_hub: HubServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[str]:
    """A bucket of the Hub that this process uses. It does not exist yet."""
    monkeypatch.setattr(constants, "ENDPOINT", running_hub.endpoint)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setenv("HF_TOKEN", running_hub.token())
    monkeypatch.setenv("HF_XET_CACHE", str(tmp_path / "xet"))
    close_session()
    yield f"hf://buckets/org/out-{next(_numbers)}"
    close_session()
    assert running_hub.handler_errors == []
    assert running_hub.faults_left == 0


@pytest.fixture(params=["folder", "memory", pytest.param("bucket", marks=pytest.mark.slow)])
def uri(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "folder":
        yield str(tmp_path / "out")
    elif request.param == "bucket":
        uri = request.getfixturevalue("bucket")
        HfApi().create_bucket(uri)
        yield uri
    else:
        uri = f"memory://out-{next(_numbers)}"
        yield uri
        files = fsspec.filesystem("memory")
        if files.exists(uri):
            files.rm(uri, recursive=True)


@pytest.fixture
def output(uri: str) -> FolderOutput:
    output = FolderOutput(uri, RUN)
    output.reserve(SPEC)
    return output
