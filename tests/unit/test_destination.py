"""The name of the repository that a crawl is published to if the user names none."""

import pytest
from huggingface_hub.utils._validators import validate_repo_id

from producer.planning.destination import default_repo_id

EDU = "HuggingFaceFW/fineweb-edu-classifier"


def repo_id(user: str = "me", model: str = EDU) -> str:
    return default_repo_id(user, crawl="CC-MAIN-2024-10", model=model)


def test_it_says_what_was_read_and_what_scored_it() -> None:
    assert repo_id() == "me/fineweb-CC-MAIN-2024-10-fineweb-edu-classifier"


@pytest.mark.parametrize(
    "model",
    [
        "/models/my classifier (v2)/",
        "./--odd..name.git",
        "org/" + "long-" * 40,
        "/модели/классификатор",
        "org/" + "a" * 49 + "-" * 3 + "b" * 49,
    ],
)
@pytest.mark.parametrize("user", ["me", "a-user-with-a-name-of-forty-characters-x"])
def test_the_hub_takes_it_whatever_the_model_is_called(user: str, model: str) -> None:
    name = repo_id(user, model=model)

    validate_repo_id(name)
    assert len(name) <= 96
    assert name.startswith(f"{user}/fineweb-CC-MAIN-2024-10")


def test_two_long_names_that_differ_at_their_end_stay_apart() -> None:
    long = "org/" + "long-" * 40

    assert repo_id(model=f"{long}1") != repo_id(model=f"{long}2")
