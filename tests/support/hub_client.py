"""Fixtures and helpers for tests of the real Hub client against the local Hub."""

import hashlib
import json
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import (
    CommitOperationAdd,
    HfApi,
    close_session,
    constants,
)
from huggingface_hub.lfs import UploadInfo
from huggingface_hub.utils._xet import abort_xet_session

from hubserver import HubServer

REPO = "org/shards"
CARD = b"---\nlicense: odc-by\nconfigs:\n- config_name: default\n  data_files: data/*.parquet\n---\n# Shards\n"
INITIAL_FILES = {".gitattributes"}
TESTS_FOLDER = Path(__file__).parents[1]

Connect = Callable[[HubServer], AbstractContextManager[HfApi]]


@pytest.fixture(params=["lfs", "xet"])
def hub(request: pytest.FixtureRequest) -> Iterator[HubServer]:
    with HubServer(xet=request.param == "xet") as hub:
        hub.create_repo(REPO)
        yield hub
    assert hub.handler_errors == []
    assert hub.faults_left == 0


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def connect(home: Path, monkeypatch: pytest.MonkeyPatch) -> Connect:
    """A client in this process, as if the process had been started with `hub.client_env`."""

    @contextmanager
    def connect(hub: HubServer) -> Iterator[HfApi]:
        monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", not hub.xet)
        for name in ("HF_HOME", "HF_HUB_DISABLE_TELEMETRY"):
            monkeypatch.setenv(name, hub.client_env(home)[name])
        abort_xet_session()
        try:
            yield HfApi(endpoint=hub.endpoint, token=hub.token("worker"))
        finally:
            abort_xet_session()
            close_session()

    return connect


@pytest.fixture
def api(hub: HubServer, connect: Connect) -> Iterator[HfApi]:
    with connect(hub) as api:
        yield api


def write(path: Path, content: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def write_noise(path: Path, size: int) -> Path:
    """Incompressible bytes, always the same for a name."""
    return write(path, random.Random(path.name).randbytes(size))


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def add(path: str, content: Path | bytes) -> CommitOperationAdd:
    return CommitOperationAdd(path, content)


def commit_text(api: HfApi, path: str, *, content: bytes = b"text", **options: Any) -> str:
    title = f"Add {path}"
    return api.create_commit(REPO, [add(path, content)], commit_message=title, repo_type="dataset", **options).oid


def download(api: HfApi, path: str, folder: Path) -> Path:
    return Path(api.hf_hub_download(REPO, path, repo_type="dataset", local_dir=folder))


def upload(api: HfApi, path: str, source: Path) -> dict[str, Any]:
    """Upload without a commit, and return what is needed to commit later."""
    operation = add(path, source)
    api.preupload_lfs_files(REPO, [operation], repo_type="dataset")
    return {"path": path, "size": operation.upload_info.size, "sha256": operation.upload_info.sha256.hex()}


def addition_from_receipt(receipt: dict[str, Any]) -> CommitOperationAdd:
    operation = add(receipt["path"], b"")
    operation.upload_info = UploadInfo(size=receipt["size"], sample=b"", sha256=bytes.fromhex(receipt["sha256"]))
    operation._upload_mode, operation._is_uploaded, operation._should_ignore = "lfs", True, False
    return operation


def run_client(hub: HubServer, home: Path, script: str, token_name: str, *arguments: str) -> Any:
    """Run a script as a client process. Returns its last line, decoded from JSON."""
    command = [sys.executable, "-c", script, REPO, *arguments]
    environment = hub.client_env(home, hub.token(token_name))
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


UPLOAD_SCRIPT = """
import json, sys
from huggingface_hub import CommitOperationAdd, HfApi
_, repo, shard = sys.argv
operation = CommitOperationAdd("data/shard.parquet", shard)
HfApi().preupload_lfs_files(repo, [operation], repo_type="dataset")
info = operation.upload_info
print(json.dumps({"path": operation.path_in_repo, "size": info.size, "sha256": info.sha256.hex()}))
"""

COMMIT_SCRIPT = """
import json, sys
from huggingface_hub import CommitOperationAdd, HfApi
from huggingface_hub.lfs import UploadInfo
_, repo, receipt = sys.argv
receipt = json.loads(receipt)
operation = CommitOperationAdd(receipt["path"], b"")
operation.upload_info = UploadInfo(size=receipt["size"], sample=b"", sha256=bytes.fromhex(receipt["sha256"]))
operation._upload_mode, operation._is_uploaded, operation._should_ignore = "lfs", True, False
card = CommitOperationAdd("README.md", b"---\\nlicense: odc-by\\n---\\n")
commit = HfApi().create_commit(repo, [operation, card], commit_message="Publish", repo_type="dataset")
print(json.dumps({"oid": commit.oid}))
"""
