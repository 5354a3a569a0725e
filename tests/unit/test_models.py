"""The models of a run as the user names them, and those of a worker."""

import json
from pathlib import Path
from typing import Any

import pytest

from shardsift.fleet.errors import UsageError
from shardsift.fleet.process.keywords import options_from
from shardsift.fleet.process.settings import Settings
from shardsift.producer.planning.options import Models, RunOptions

EDU, TOX = "edu=HuggingFaceFW/fineweb-edu-classifier", "tox=unitary/toxic-bert@abc123"


def told(*models: str) -> list[tuple[str, str | None, str]]:
    return [(*named, column) for column, named in Models(models=models).by_column.items()]


def test_each_of_several_models_has_columns_and_a_revision_of_its_own() -> None:
    assert told(EDU, TOX) == [
        ("HuggingFaceFW/fineweb-edu-classifier", None, "edu_score"),
        ("unitary/toxic-bert", "abc123", "tox_score"),
    ]


def test_a_single_model_needs_no_name() -> None:
    assert told("me/m") == [("me/m", None, "score")]
    assert told("me/m@v2") == [("me/m", "v2", "score")]
    assert told("edu=me/m@v2") == [("me/m", "v2", "edu_score")]


def test_a_model_folder_may_have_an_equals_sign_and_an_at(tmp_path: Path) -> None:
    (tmp_path / "a=b@c").mkdir()

    assert told(f"{tmp_path}/a=b@c") == [(f"{tmp_path}/a=b@c", None, "score")]
    assert told(f"edu={tmp_path}/a=b@c") == [(f"{tmp_path}/a=b@c", None, "edu_score")]


@pytest.mark.parametrize(
    ("models", "says"),
    [
        ((EDU, "me/my-m@v2"), "Give each of several models a name for its columns, like --model edu=me/my-m@v2."),
        (("my-edu=me/m",), "'my-edu' cannot name columns. Use letters, digits and _"),
        ((EDU, "EDU=me/m"), "Two models are called edu."),
        (("",), "--model is empty"),
        ((), "--model is empty"),
    ],
)
def test_models_that_do_not_go_together_are_refused(models: tuple[str, ...], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        told(*models)


def test_python_takes_a_name_several_or_a_dict() -> None:
    given: list[Any] = ["m", ["edu=m", "tox=n"], {"edu": "m", "tox": "n"}]

    assert [options_from(RunOptions, {"model": one}).models for one in given] == [
        ("m",),
        ("edu=m", "tox=n"),
        ("edu=m", "tox=n"),
    ]


def test_the_models_of_a_worker_are_named_by_one_setting() -> None:
    assert Settings(model="me/m").models == (("me/m", None),)
    assert Settings(model="me/m@v2").models == (("me/m", "v2"),)
    assert Settings(model='["me/m@v2"]').models == (("me/m", "v2"),)
    assert Settings(model="me/m, me/n@v2").models == (("me/m", None), ("me/n", "v2"))


def test_a_worker_may_serve_folders_with_commas(tmp_path: Path) -> None:
    odd = tmp_path / "a,b@c"
    odd.mkdir()

    assert Settings(model=str(odd)).models == ((str(odd), None),)
    assert Settings(model=json.dumps([f"{odd}@sha256-1", "me/n"])).models == (
        (str(odd), "sha256-1"),
        ("me/n", None),
    )


def test_models_of_a_worker_that_cannot_be_read_are_reported() -> None:
    with pytest.raises(UsageError, match=r'is no JSON list of models, like \["me/one", "me/other"\]'):
        _ = Settings(model='["me/m"').models
