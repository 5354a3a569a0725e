"""The differences between two runs are explained in terms of the options."""

from dataclasses import fields, replace
from typing import Any

import pytest

from fleet.run.disclosure import disclosed_spec
from fleet.run.model import Model
from fleet.run.scoring import Scoring, ZeroShot
from fleet.run.spec import RunSpec
from fleet.storage.other_run import other_run
from support.records import a_spec

SPEC = a_spec(input_uris=("web",), crawl=None)
MODEL = SPEC.scorings[0].model


def told(here: RunSpec, there: RunSpec = SPEC) -> str:
    return (
        str(other_run("out", there.run_id, disclosed_spec(there), here))
        .partition("The difference is ")[2]
        .partition(". Choose")[0]
    )


@pytest.mark.parametrize(
    ("changes", "clauses"),
    [
        ({}, "the location of the input or the model"),
        ({"where": None}, '--min-score or --where: "score" >= 3.0 there, none here'),
        ({"int_score": False, "dtype": "auto"}, "--dtype: float32 there, auto here; int_score: yes there, no here"),
        (
            {"row_columns": None, "limit_rows": 5},
            "--row-columns: shard, row there, none here; --limit-rows: none there, 5 here",
        ),
        ({"columns": (("text", "bool"),)}, "the columns: text string, id string there, text bool here"),
        ({"model": replace(MODEL, revision="5")}, "the model's revision: 4567def there, 5 here"),
        ({"zero_shot": ZeroShot(labels=("a",))}, "--labels: none there, a here"),
    ],
)
def test_each_option_that_differs_is_told_with_both_values(changes: dict[str, Any], clauses: str) -> None:
    assert told(changed(**changes)) == clauses


OTHERS: dict[str, Any] = {  # another value for each field; 7 for fields that are not listed
    "input_uris": ("b",),
    "input_revision": "89abcde",
    "crawl": "CC-MAIN-2024-10",
    "columns": (),
    "scorings": (),
    "row_columns": None,
    "output_uri": "other",
}
OTHER_SCORINGS: dict[str, Any] = {
    "model": replace(MODEL, name="m"),
    "dtype": "auto",
    "function_to_apply": "sigmoid",
    "int_score": False,
    "scores_from": Model(name="./kept", revision="sha256-1", labels=("a",), scorer="stored-scores"),
    "zero_shot": ZeroShot(labels=("a",)),
}


@pytest.mark.parametrize("field", [field.name for field in fields(RunSpec)])
def test_no_field_differs_without_a_word(field: str) -> None:
    assert " there, " in told(replace(SPEC, **{field: OTHERS.get(field, 7)}))


@pytest.mark.parametrize("field", [field.name for field in fields(Scoring)])
def test_no_field_of_a_scoring_differs_without_a_word(field: str) -> None:
    assert " there, " in told(changed(**{field: OTHER_SCORINGS.get(field, "other")}))


def test_a_difference_of_several_models_is_told_once() -> None:
    several = replace(SPEC, scorings=SPEC.scorings * 2)
    coarser = replace(several, scorings=tuple(replace(one, dtype="float16") for one in several.scorings))

    assert told(coarser, several) == f"--dtype: {SPEC.scorings[0].dtype} there, float16 here"


def changed(**changes: Any) -> RunSpec:
    return a_spec(**{"input_uris": ("web",), "crawl": None, **changes})
