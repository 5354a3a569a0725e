"""Models on the Hub are pinned to a commit, with or without a network."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from huggingface_hub import close_session, constants

from hubserver import HubServer
from shardsift.fleet.errors import UsageError
from shardsift.fleet.scorers.kinds import resolve_model
from support.ports import unused_port

MODEL = "org/tiny"
NOT_HERE = " There is no folder 'org/other' here either\\.$"


@pytest.fixture(scope="module")
def running_hub(tiny_model: Path) -> Iterator[HubServer]:
    with HubServer() as hub:
        hub.create_repo(MODEL, repo_type="model")
        hub.add_folder(MODEL, tiny_model, repo_type="model")
        yield hub


@pytest.fixture(autouse=True)
def own_cache(hub: HubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))


def go_offline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    close_session()


def resolved(name: str, revision: str | None = None) -> str:
    return resolve_model("sequence-classifier", name, revision).revision


def test_a_model_is_pinned_to_its_commit_and_others_are_refused(hub: HubServer) -> None:
    assert resolved(MODEL) == hub.commits(MODEL, repo_type="model")[0].oid
    with pytest.raises(UsageError, match=r"^The model org/tiny has no revision 'v2'\. Name a branch, tag or commit"):
        resolved(MODEL, "v2")


def test_without_a_network_a_cached_model_is_pinned_to_its_cached_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    online = resolved(MODEL)
    go_offline(monkeypatch)

    assert resolved(MODEL) == resolved(MODEL, online) == online
    with pytest.raises(UsageError, match=NOT_HERE):
        resolved("org/other")
    with pytest.raises(UsageError, match="^HF_HUB_OFFLINE is set, and this machine has no copy of .* at revision v2"):
        resolved(MODEL, "v2")


def test_without_a_network_a_model_that_is_not_here_is_told_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """The Hub's client tries again for at least 23 s."""
    unused = f"http://127.0.0.1:{unused_port()}"
    monkeypatch.setattr(constants, "ENDPOINT", unused)
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", unused + "/{repo_id}/resolve/{revision}/{filename}")

    began = time.monotonic()
    with pytest.raises(UsageError, match=rf"^The Hub does not answer at {unused} \(.*{NOT_HERE}"):
        resolved("org/other")
    assert time.monotonic() - began < 20
    go_offline(monkeypatch)
    with pytest.raises(UsageError, match=f"no copy of the model org/other in its cache\\.{NOT_HERE}"):
        resolved("org/other")
