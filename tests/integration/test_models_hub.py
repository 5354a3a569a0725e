"""Models on the Hub, resolved by a separate process like a user's."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from hubserver import HubServer
from support.ports import unused_port
from support.processes import ask_process

MODEL = "org/tiny"
RESOLVE = """
import json, sys
from shardsift.fleet.errors import UsageError
from shardsift.fleet.scorers.kinds import resolve_model
answers = []
for name, revision in json.loads(sys.argv[1]):
    try:
        answers.append(resolve_model("sequence-classifier", name, revision).revision)
    except UsageError as error:
        answers.append(str(error))
print(json.dumps(answers))
"""


@pytest.fixture(scope="module")
def hub(tiny_model: Path) -> Iterator[HubServer]:
    with HubServer() as hub:
        hub.create_repo(MODEL, repo_type="model")
        hub.add_folder(MODEL, tiny_model, repo_type="model")
        yield hub
    assert hub.handler_errors == []


@pytest.fixture
def environment(hub: HubServer, tmp_path: Path) -> dict[str, str]:
    return hub.client_env(tmp_path / "home")


def resolved(environment: dict[str, str], *questions: tuple[str, str | None]) -> list[str]:
    """The revision of each model, or why there is none."""
    return ask_process(RESOLVE, questions, environment)


def test_a_model_is_pinned_to_its_commit_and_others_are_refused(hub: HubServer, environment: dict[str, str]) -> None:
    pinned, refused = resolved(environment, (MODEL, None), (MODEL, "v2"))

    assert pinned == hub.commits(MODEL, repo_type="model")[0].oid
    assert refused == "The model org/tiny has no revision 'v2'. Name a branch, tag or commit after the @."


def test_without_a_network_a_cached_model_is_pinned_to_its_cached_commit(environment: dict[str, str]) -> None:
    (online,) = resolved(environment, (MODEL, None))
    offline = {**environment, "HF_HUB_OFFLINE": "1"}

    newest, pinned, other, revision = resolved(
        offline, (MODEL, None), (MODEL, online), ("org/other", None), (MODEL, "v2")
    )

    assert newest == pinned == online
    assert other.endswith(" There is no folder 'org/other' here either.")
    assert revision.startswith(
        "HF_HUB_OFFLINE is set, and this machine has no copy of the model org/tiny at revision v2"
    )


def test_without_a_network_a_model_that_is_not_here_is_told_soon(environment: dict[str, str], tmp_path: Path) -> None:
    """The Hub's client tries again for at least 23 s."""
    unused = f"http://127.0.0.1:{unused_port()}"
    home = {"HF_HOME": str(tmp_path / "empty")}

    began = time.monotonic()
    (refused,) = resolved(environment | home | {"HF_ENDPOINT": unused}, ("org/other", None))
    seconds = time.monotonic() - began
    (offline,) = resolved(environment | home | {"HF_HUB_OFFLINE": "1"}, ("org/other", None))

    assert refused.startswith(f"The Hub does not answer at {unused} (")
    assert refused.endswith(" There is no folder 'org/other' here either.")
    assert seconds < 20
    assert offline == (
        "HF_HUB_OFFLINE is set, and this machine has no copy of the model org/other in its cache. "
        "There is no folder 'org/other' here either."
    )
