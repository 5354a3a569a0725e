"""An output of a run, in a folder and in a bucket."""

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import fsspec
import pytest

from fleet.storage.folder import FolderOutput
from support.folder_runs import RUN, SPEC

_numbers = count()


@pytest.fixture(params=["folder", "memory"])
def uri(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "folder":
        yield str(tmp_path / "out")
        return
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
