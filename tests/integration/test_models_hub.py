"""Models on the Hub, resolved by a separate process like a user's."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hubserver import HubServer

MODEL = "org/tiny"
RESOLVE = """
import json, sys
from fleet.errors import UsageError
from fleet.scorers import resolve_model
try:
    answer = resolve_model("sequence-classifier", sys.argv[1], sys.argv[2] or None).revision
except UsageError as error:
    answer = str(error)
print(json.dumps(answer))
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


def resolved(environment: dict[str, str], name: str = MODEL, revision: str = "") -> str:
    done = subprocess.run(
        [sys.executable, "-c", RESOLVE, name, revision],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return str(json.loads(done.stdout))


def test_a_model_is_pinned_to_its_commit(hub: HubServer, environment: dict[str, str]) -> None:
    assert resolved(environment) == hub.commits(MODEL, repo_type="model")[0].oid


def test_without_a_network_a_cached_model_is_pinned_to_its_cached_commit(environment: dict[str, str]) -> None:
    online = resolved(environment)

    offline = {**environment, "HF_HUB_OFFLINE": "1"}
    assert resolved(offline) == online
    assert resolved(offline, revision=online) == online


@pytest.mark.parametrize(("name", "revision"), [("org/other", ""), (MODEL, "v2")])
def test_without_a_network_a_model_that_is_not_cached_is_one_line(
    name: str, revision: str, environment: dict[str, str]
) -> None:
    resolved(environment)

    said = resolved({**environment, "HF_HUB_OFFLINE": "1"}, name, revision)

    assert said.startswith(f"Looking for the model {name}{f' at revision {revision}' if revision else ''}: ")
    assert said.endswith(f" There is no folder {name!r} here either.")
    assert "\n" not in said


def test_a_revision_that_the_hub_does_not_have_is_one_line(environment: dict[str, str]) -> None:
    said = resolved(environment, revision="v2")

    assert said == "The model org/tiny has no revision 'v2'. Give --revision a branch, tag or commit."
