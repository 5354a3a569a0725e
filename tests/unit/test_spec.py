"""A run is defined by its spec: equal specs give the same id, and every field that affects the output changes the id."""

import json
from dataclasses import MISSING, fields, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from shardsift.fleet.run.model import Model
from shardsift.fleet.run.scoring import Scoring, ZeroShot
from shardsift.fleet.run.spec import BestRows, Buckets, DropList, RunSpec, is_run_id
from support.records import a_spec

MODEL = a_spec().scorings[0].model
OTHER_MODEL = Model(name="org/other", revision="89ab", labels=("LABEL_0",))
CHANGES: dict[str, Any] = {
    "input_uris": ("hf://datasets/HuggingFaceFW/fineweb@0123abc/data/CC-MAIN-2024-10/000_*.parquet",),
    "input_revision": "fedcba",
    "crawl": None,
    "columns": (("text", "string"), ("id", "large_string")),
    "text_columns": ("id",),
    "text_template": "{id}",
    "text_pair_column": "id",
    "max_tokens": 5,
    "passages": "head+tail",
    "pool": "mean",
    "model": OTHER_MODEL,
    "dtype": "bfloat16",
    "score_column": "edu",
    "int_score": False,
    "where": None,
    "output_uri": "memory://elsewhere",
    "function_to_apply": "sigmoid",
    "row_columns": ("shard_2", "row_2"),
    "only_columns": True,
    "folder_columns": ("text",),
    "subsets": ("2023", "2024"),
    "extends": "web.model.0123456789ab",
    "limit_rows": 1,
    "rows_per_task": 1,
    "max_bad_rows": 0.5,
    "buckets": Buckets(columns=("score",), edges=((None, (1.5,)), ("a", (0.1, 2.0)), (7, ()))),
    "best": BestRows(columns=("score",), share="10%", by="tokens"),
    "drop_lists": (DropList(uri="optout.csv", field="domain", column="url", sha256="ab", values=2),),
    "target_file_bytes": 1,
    "unique": True,
    "window_rows": 1,
    "scorings": a_spec().scorings * 2,
    "zero_shot": ZeroShot(labels=("a", "b")),
    "scores_from": OTHER_MODEL,
    "window_bytes": 1,
}
TEXT = st.text(st.characters(codec="utf-8"), max_size=60)


def test_an_id_stays_what_it_was_in_earlier_releases() -> None:
    assert a_spec().run_id == "cc-main-2024-10.fineweb-edu-classifier.9b46301afbf5"


FIELDS = [field.name for spec in (RunSpec, Scoring) for field in fields(spec)]
SAME_NAME = [{"model": replace(MODEL, revision="other")}, {"model": replace(MODEL, labels=("good",))}]


@pytest.mark.parametrize("changes", [*({field: CHANGES[field]} for field in FIELDS), *SAME_NAME])
def test_each_field_makes_another_run(changes: dict[str, Any]) -> None:
    assert a_spec(**changes).run_id != a_spec().run_id


@pytest.mark.parametrize(
    ("changes", "head"),
    [
        ({}, "cc-main-2024-10.fineweb-edu-classifier."),
        ({"crawl": None, "input_uris": ("/data/My Shards/*.parquet",)}, "my-shards.fineweb-edu-classifier."),
        ({"crawl": None, "input_uris": ("/home/me/*.parquet",)}, "input.fineweb-edu-classifier."),
        ({"crawl": None, "input_uris": ("/daten/übergrößen",)}, "bergr-en.fineweb-edu-classifier."),
        ({"model": OTHER_MODEL}, "cc-main-2024-10.other."),
        ({"crawl": None, "subsets": ("CC-MAIN-2024-10", "CC-MAIN-2024-18")}, "cc-main-2024-10-and-1-more.fineweb-"),
        ({"crawl": None, "subsets": ("2023",), "input_uris": ("/data/web",)}, "web.fineweb-edu-classifier."),
    ],
)
def test_the_head_of_an_id_tells_input_and_model(changes: dict[str, Any], head: str) -> None:
    assert a_spec(**changes).run_id.startswith(head)


@given(crawl=TEXT | st.none(), input_uri=TEXT, model_name=TEXT)
def test_an_id_is_one_whatever_the_names(crawl: str | None, input_uri: str, model_name: str) -> None:
    model = Model(name=model_name, revision="1", labels=("a",))

    assert is_run_id(a_spec(crawl=crawl, input_uris=(input_uri,), model=model).run_id)


@pytest.mark.parametrize("text", ["", ".hidden", "-x", "A", "a b", "a/b", "a\n", "a:b", "a*", "é", "a" * 82])
def test_what_could_reach_another_key_or_folder_is_no_run_id(text: str) -> None:
    assert not is_run_id(text)


@pytest.mark.parametrize("field", [None, *CHANGES])
def test_a_spec_comes_back_as_it_was(field: str | None) -> None:
    spec = a_spec(**({field: CHANGES[field]} if field else {}))

    assert RunSpec.from_json(spec.to_json()) == spec
    assert RunSpec.from_json(spec.to_json()).run_id == spec.run_id


def test_a_field_with_its_default_is_left_out_so_that_a_new_one_keeps_all_ids() -> None:
    scoring = Scoring(model=OTHER_MODEL, dtype="auto", text_columns=("text",), score_column="score")
    chosen = replace(scoring, zero_shot=ZeroShot(labels=("a", "b")), scores_from=OTHER_MODEL)
    required = {field.name: getattr(a_spec(), field.name) for field in fields(RunSpec) if field.default is MISSING}
    spec = RunSpec(**{**required, "scorings": (scoring, chosen)})

    found = json.loads(spec.to_json())
    plain, full = found["scorings"]

    assert set(found) == set(required)
    assert set(plain) == _required(Scoring)
    assert set(full) == _required(Scoring) | {"zero_shot", "scores_from"}
    assert set(full["zero_shot"]) == _required(ZeroShot)
    assert set(plain["model"]) == set(full["scores_from"]) == _required(Model)


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"input_uris": 5}', "null"])
def test_what_is_no_json_of_a_spec_is_refused(text: str) -> None:
    with pytest.raises(ValidationError):
        RunSpec.from_json(text)


def test_a_queue_names_model_revision_and_dtype() -> None:
    on_hub = Model(name="org/Big Model_v2", revision="0123456789abcdef", labels=("a",))
    folder = Model(name="/models/mine", revision="sha256-0123456789abcdef", labels=("a",))

    assert on_hub.queue("float32") == "score.sequence-classifier.big-model-v2.0123456789ab.float32"
    assert folder.queue("auto") == "score.sequence-classifier.mine.0123456789ab.auto"


def test_a_run_of_several_models_has_the_queue_of_all_of_them_and_counts_each_once() -> None:
    (one,), (other,) = a_spec().scorings, a_spec(model=OTHER_MODEL).scorings
    queue = a_spec(scorings=(one, other, replace(one, score_column="again"))).queue

    assert queue == f"{one.queue}+{other.queue}"


@pytest.mark.parametrize(
    ("score_column", "labels", "columns"),
    [
        ("edu", ("a", "b"), ("edu", "edu_label", "edu_a", "edu_b")),
        ("score", ("a", "b"), ("score", "label", "score_a", "score_b")),
        ("edu", ("climate change", "C++", "C#"), ("edu", "edu_label", "edu_climate_change", "edu_C", "edu_C_2")),
        ("edu", ("Good", "good", "good_2"), ("edu", "edu_label", "edu_Good", "edu_good_2", "edu_good_2_2")),
        ("edu", ("label", "logits"), ("edu", "edu_label", "edu_label_2", "edu_logits_2")),
        ("edu", tuple(map(str, range(300))), ("edu", "edu_label")),
    ],
)
def test_output_columns_follow_from_the_score_column_the_labels_and_rounding(
    score_column: str, labels: tuple[str, ...], columns: tuple[str, ...]
) -> None:
    spec = a_spec(model=replace(MODEL, labels=labels), score_column=score_column, int_score=False)

    assert spec.output_columns == columns
    assert replace(spec.scorings[0], int_score=True).output_columns == (*columns, f"int_{score_column}")


def _required(part: type[Any]) -> set[str]:
    return {field.name for field in fields(part) if field.default is MISSING}
