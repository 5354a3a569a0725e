"""A trained model becomes a repository on the Hub, in one commit that never replaces anything."""

import subprocess
import sys
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
from huggingface_hub import ModelCard
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from hubserver import HubServer
from shardsift.fleet.errors import UsageError
from shardsift.worker.training.train import model_output
from support import hub_fleet
from support.hub_fleet import User
from support.labelled import write_topics
from support.models import tiny_classifier

running_hub = hub_fleet.running_hub
_numbers = count()

# In LFS uploads, the client passes files to httpx2 in a deprecated way.
pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")


@pytest.fixture
def worker(hub: HubServer) -> User:
    return User(hub, "worker")


@pytest.fixture
def repo() -> str:
    """The name of a repository that does not exist."""
    return f"worker/model-{next(_numbers)}"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write(tmp_path / "partial" / "model.safetensors", b"weights" * 100)
    write(tmp_path / "partial" / "config.json", b"{}")
    write(tmp_path / "partial" / "README.md", b"---\ntags: [shardsift]\n---\n# A model\n")
    return tmp_path / "partial"


def write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def reserve(uri: str) -> None:
    model_output(uri).reserve()


def store(uri: str, folder: Path) -> None:
    output = model_output(uri)
    output.partial = folder
    output.store()


def files(hub: HubServer, repo: str) -> set[str]:
    return hub.files(repo, repo_type="model").keys() - {".gitattributes"}


def titles(hub: HubServer, repo: str) -> list[str]:
    return [commit.title for commit in hub.commits(repo, repo_type="model")]


def test_a_private_repository_is_written_in_one_commit(hub: HubServer, worker: User, repo: str, folder: Path) -> None:
    worker.call(reserve, f"hf://{repo}")
    assert (files(hub, repo), hub.is_private(repo, "model")) == (set(), True)

    worker.call(store, f"hf://{repo}", folder)

    assert titles(hub, repo) == ["Train a classifier", "initial commit"]
    assert files(hub, repo) == {"README.md", "config.json", "model.safetensors"}
    assert hub.read(repo, "model.safetensors", repo_type="model") == b"weights" * 100
    assert not folder.exists()


def test_a_repository_of_somebody_else_is_never_written(hub: HubServer, worker: User, repo: str, folder: Path) -> None:
    hub.create_repo(repo, repo_type="model")
    write(folder.parent / "theirs" / "README.md", b"# Theirs\n")
    hub.add_folder(repo, folder.parent / "theirs", repo_type="model")

    for act in ((reserve, f"hf://{repo}"), (store, f"hf://{repo}", folder)):
        with pytest.raises(UsageError, match=f"hf://{repo} already holds files. Name another repository"):
            worker.call(*act)

    assert hub.read(repo, "README.md", repo_type="model") == b"# Theirs\n"


@pytest.mark.slow
def test_a_repository_without_write_access_is_refused_before_training(hub: HubServer, worker: User, repo: str) -> None:
    with pytest.raises(UsageError, match="must be a model repository that HF_TOKEN can write"):
        worker.call(reserve, f"hf://{repo}", token=hub.token("reader", write=False))


@pytest.mark.parametrize("uri", ["hf://datasets/me/model", "hf://me", "hf://me/model@main", "s3://bucket/model"])
def test_a_uri_at_which_no_model_can_be_is_one_clear_error(uri: str) -> None:
    with pytest.raises(UsageError, match=f"written to a folder or to hf://USER/NAME, and --output is {uri}"):
        model_output(uri)


@pytest.fixture
def own_hub() -> Iterator[HubServer]:
    with HubServer() as hub:
        yield hub
    assert hub.handler_errors == []


@pytest.mark.slow
def test_worker_train_writes_a_repository_for_runs(own_hub: HubServer, tmp_path: Path) -> None:
    write_topics(tmp_path / "topics.parquet", rows=60)
    data = ("--data", "topics.parquet", "--label-column", "topic")
    how = ("--base-model", str(tiny_classifier(tmp_path / "base")), "--dtype", "float32", "--device", "cpu")

    done = subprocess.run(
        [sys.executable, "-m", "shardsift", "train", *data, *how, "--output", "hf://me/topics"],
        cwd=tmp_path,
        env=own_hub.client_env(tmp_path / "home", own_hub.token("me")),
        check=False,
        capture_output=True,
    )

    assert done.returncode == 0, done.stderr.decode()
    assert {path.name for path in tmp_path.iterdir()} == {"base", "home", "topics.parquet"}
    for name in files(own_hub, "me/topics"):
        write(tmp_path / "copy" / name, own_hub.read("me/topics", name, repo_type="model"))
    assert (
        "producer run --input ./shards --model me/topics --output" in ModelCard.load(tmp_path / "copy/README.md").text
    )
    model = AutoModelForSequenceClassification.from_pretrained(tmp_path / "copy")
    assert model.config.id2label == {0: "biology", 1: "cooking", 2: "sport"}
    assert AutoTokenizer.from_pretrained(tmp_path / "copy")("the enzyme")["input_ids"]
