"""The differences between two runs are explained in terms of the options."""

from dataclasses import fields, replace
from typing import Any

import pytest

from fleet.run.model import Model
from fleet.run.scoring import Scoring, ZeroShot
from fleet.run.spec import RunSpec
from fleet.run.spec_difference import differences
from support.records import a_spec

SPEC = a_spec(input_uris=("/data/web",), input_revision="sha256-1", crawl=None)
MODEL = SPEC.scorings[0].model


@pytest.mark.parametrize(
    ("changes", "clauses"),
    [
        ({}, []),
        ({"where": '"score" >= 4.0'}, ['--min-score or --where: "score" >= 3.0 there, "score" >= 4.0 here']),
        ({"where": None}, ['--min-score or --where: "score" >= 3.0 there, every row is kept here']),
        ({"text_columns": ("id",)}, ["--text-column: text there, id here"]),
        (
            {"int_score": False, "dtype": "auto"},
            ["--dtype: float32 there, auto here", "int_score: yes there, no here"],
        ),
        ({"limit_rows": 5}, ["--limit-rows: none there, 5 here"]),
        ({"row_columns": None}, ["--row-columns: shard, row there, none here"]),
        ({"input_revision": "sha256-2"}, ["the input: files were changed, added or removed since"]),
        (
            {"input_uris": ("/data/a", "/data/b"), "input_revision": "sha256-2"},
            ["--input: /data/web there, /data/a, /data/b here"],
        ),
        (
            {"columns": (("text", "large_string"), ("url", "string"))},
            [
                'the column "text": string there, large_string here',
                'the column "id": string there, missing here',
                'the column "url": missing there, string here',
            ],
        ),
        ({"columns": SPEC.columns[::-1]}, ["the order of the columns"]),
        ({"zero_shot": ZeroShot(labels=("a",))}, ["--labels: none there, a here"]),
        ({"model": replace(MODEL, revision="5")}, ["the model's revision: 4567def there, 5 here"]),
        ({"model": replace(MODEL, labels=("good",))}, ["the model's labels: LABEL_0 there, good here"]),
        (
            {"model": Model(name="me/mine", revision="5", labels=("good",))},
            ["--model: HuggingFaceFW/fineweb-edu-classifier there, me/mine here"],
        ),
    ],
)
def test_each_option_that_differs_is_told_with_both_values(changes: dict[str, Any], clauses: list[str]) -> None:
    assert differences(SPEC, changed(**changes)) == clauses


def test_labels_and_template_that_differ_are_told() -> None:
    there = changed(zero_shot=ZeroShot(labels=("a", "b")))
    here = changed(zero_shot=ZeroShot(labels=("a", "c"), hypothesis_template="{}", multi_label=True))

    assert differences(there, here) == [
        "--labels: a, b there, a, c here",
        "--hypothesis-template: This example is {}. there, {} here",
        "--multi-label: no there, yes here",
    ]


OTHERS: dict[str, Any] = {  # another value for each field; 7 for fields that are not listed
    "input_uris": ("/b",),
    "input_revision": "0123abc",
    "crawl": "CC-MAIN-2024-10",
    "columns": (),
    "scorings": (),
    "row_columns": None,
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
    assert differences(SPEC, replace(SPEC, **{field: OTHERS.get(field, 7)}))


@pytest.mark.parametrize("field", [field.name for field in fields(Scoring)])
def test_no_field_of_a_scoring_differs_without_a_word(field: str) -> None:
    assert differences(SPEC, changed(**{field: OTHER_SCORINGS.get(field, "other")}))


def test_a_difference_of_several_models_is_told_once() -> None:
    several = replace(SPEC, scorings=SPEC.scorings * 2)
    coarser = replace(several, scorings=tuple(replace(one, dtype="float16") for one in several.scorings))

    assert differences(several, coarser) == [f"--dtype: {SPEC.scorings[0].dtype} there, float16 here"]


def changed(**changes: Any) -> RunSpec:
    return a_spec(**{"input_uris": ("/data/web",), "input_revision": "sha256-1", "crawl": None, **changes})
