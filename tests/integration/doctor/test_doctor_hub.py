"""The lines of the doctor about the Hub, its token, and inputs and outputs there, on a local Hub."""

from collections.abc import Callable
from pathlib import Path

import pytest
from huggingface_hub import HfFileSystem, constants

from fleet.doctor.checks import Diagnosis, Result
from fleet.doctor.services import hub_checks
from fleet.process.settings import Settings
from hubserver import HubServer
from producer.doctor import producer_checks
from support.diagnoses import diagnosed, not_ok

UseToken = Callable[[str], None]


@pytest.fixture
def hub(hub: HubServer) -> HubServer:
    HfFileSystem.clear_instance_cache()
    return hub


def token_line(output: str | None = None) -> Diagnosis:
    found = diagnosed(hub_checks(is_needed=True, output_repo=output))
    not_ok(found)
    assert found["hub"].result is Result.OK
    return found["hub token"]


@pytest.mark.parametrize(("is_needed", "result"), [(False, Result.WARNING), (True, Result.WRONG)])
@pytest.mark.usefixtures("no_hub")
def test_a_hub_that_does_not_answer_is_wrong_if_it_is_needed(is_needed: bool, result: Result) -> None:
    found = diagnosed(hub_checks(is_needed=is_needed))

    assert not_ok(found) == {"hub": result}
    assert list(found) == ["hub"]
    assert "does not answer at http://127.0.0.1:1" in found["hub"].says


def test_offline_the_hub_is_not_asked(hub: HubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    hub.forget_requests()

    found = diagnosed(hub_checks(is_needed=False))

    assert not_ok(found) == {"hub": Result.WARNING}
    assert hub.requests == []


@pytest.mark.usefixtures("hub")
@pytest.mark.parametrize(("output", "result"), [(None, Result.WARNING), ("ada/kept", Result.WRONG)])
def test_no_token_is_wrong_if_something_is_to_be_written(output: str | None, result: Result) -> None:
    line = token_line(output)

    assert line.result is result
    assert "no Hugging Face token" in line.says


@pytest.mark.usefixtures("hub")
def test_a_token_that_the_hub_refuses_is_wrong(use_token: UseToken) -> None:
    use_token("hf_never_issued")

    line = token_line()

    assert (line.result, line.says) == (Result.WRONG, "The Hub refuses this HF_TOKEN.")


@pytest.mark.parametrize(
    ("write", "scopes", "output", "result", "says"),
    [
        (True, None, "ada/kept", Result.OK, "of ada, role write."),
        (False, None, "ada/kept", Result.WRONG, "role read. It may not write to ada/kept."),
        (False, None, None, Result.WARNING, "role read."),
        (True, ("org",), "ada/kept", Result.OK, "role fineGrained."),
    ],
)
def test_a_token_is_told_with_its_user_and_role(
    hub: HubServer,
    use_token: UseToken,
    write: bool,
    scopes: tuple[str, ...] | None,
    output: str | None,
    result: Result,
    says: str,
) -> None:
    token = hub.token("ada", write=write, scopes=scopes)
    use_token(token)

    line = token_line(output)

    assert line.result is result
    assert says in line.says
    assert token not in str(line)


@pytest.fixture
def local(tmp_path: Path) -> Settings:
    return Settings(state_dir=tmp_path)


@pytest.mark.parametrize(
    ("repo", "says"), [("ada/kept", "lets this token write to it"), ("ada/new", "does not exist yet")]
)
def test_an_output_on_the_hub_is_asked_for_and_not_created(
    hub: HubServer, use_token: UseToken, local: Settings, repo: str, says: str
) -> None:
    use_token(hub.token("ada"))
    hub.forget_requests()

    found = diagnosed(producer_checks(local, output_uri=f"hf://datasets/{repo}"))

    assert not_ok(found) == {}
    assert says in found["output"].says
    assert {request.method for request in hub.requests} <= {"GET", "HEAD"}


def test_an_output_that_the_hub_refuses_is_wrong(hub: HubServer, use_token: UseToken, local: Settings) -> None:
    use_token(hub.token("ada", write=False, scopes=("ada",)))  # it says that it may write, and the Hub refuses

    found = diagnosed(producer_checks(local, output_uri="hf://datasets/ada/kept"))

    assert not_ok(found) == {"output": Result.WRONG}
    assert "refuses this token" in found["output"].says + found["output"].mend


def test_an_input_that_is_not_on_the_hub_is_wrong(hub: HubServer, use_token: UseToken, local: Settings) -> None:
    uri = "hf://datasets/ada/none/data"
    use_token(hub.token("ada"))

    found = diagnosed(producer_checks(local, input_uris=[uri]))

    assert not_ok(found) == {"input": Result.WRONG}
    assert uri in found["input"].says


def test_an_input_on_the_hub_is_read(hub: HubServer, use_token: UseToken, local: Settings, inputs: Path) -> None:
    hub.create_repo("ada/shards")
    hub.add_folder("ada/shards", inputs)
    use_token(hub.token("ada"))

    found = diagnosed(producer_checks(local, input_uris=["hf://datasets/ada/shards"]))

    assert not_ok(found) == {}
    assert "2 files" in found["input"].says
