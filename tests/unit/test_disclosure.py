"""Published files do not name the machines that made them."""

from dataclasses import replace

import pytest

from shardsift.fleet.run.model import Model
from shardsift.fleet.run.spec import (
    DropList,
    disclosed_inputs,
    disclosed_model,
    disclosed_source,
    disclosed_spec,
    disclosed_worker,
)
from support.records import a_shard, a_spec

FOLDER_MODEL = Model(name="/home/me/models/mine", revision="sha256-abc", labels=("LABEL_0",))


@pytest.mark.parametrize(
    ("uri", "named"),
    [
        ("/home/me/shards", "shards"),
        ("/home/me/shards/**/*.parquet", "shards/**/*.parquet"),
        ("s3://bucket/private/crawl/*.parquet", "crawl/*.parquet"),
        ("/home/me", "**"),
        ("/root/a*/b.parquet", "a*/b.parquet"),
        ("s3://bucket/", "**"),
        ("hf://datasets/me/mine@0123abc/data/*.parquet", "hf://datasets/me/mine@0123abc/data/*.parquet"),
    ],
)
def test_an_input_is_named_by_its_last_part_but_not_by_a_user_or_a_bucket(uri: str, named: str) -> None:
    assert disclosed_inputs(a_spec(input_uris=(uri,))) == (named,)
    assert disclosed_inputs(a_spec(input_uris=(named,))) == (named,)


@pytest.mark.parametrize(
    ("name", "uri", "named"),
    [
        ("crawl/a/one", "s3://bucket/data/crawl/a/one.parquet", "crawl/a/one.parquet"),
        ("one.pq", "/home/me/one.pq", "one.pq"),
        ("c/one", "hf://datasets/me/a@0123abc/data/c/one.parquet", "hf://datasets/me/a@0123abc/data/c/one.parquet"),
    ],
)
def test_a_shard_is_named_below_the_root_of_its_input(name: str, uri: str, named: str) -> None:
    shard = a_shard(name, uri=uri)

    assert disclosed_source(shard, ()) == named
    assert disclosed_source(replace(shard, name=f"2023/{name}"), ("2023",)) == named


def test_a_folder_of_a_model_or_of_scores_is_named_by_its_last_part_and_a_hub_name_stays() -> None:
    stored = replace(FOLDER_MODEL, name="/home/me/kept", scorer="stored-scores")

    assert [disclosed_model(model) for model in (FOLDER_MODEL, stored)] == ["mine", "kept"]
    assert disclosed_model(a_spec().scorings[0].model) == "HuggingFaceFW/fineweb-edu-classifier"
    assert disclosed_model(replace(stored, name="hf://datasets/me/kept")) == "hf://datasets/me/kept"


def test_a_worker_has_one_short_name_in_a_run_and_another_in_the_next() -> None:
    first, second = a_spec(), a_spec(text_columns=("other",))

    named = disclosed_worker(first, "w1@host.intern/7")

    assert named == disclosed_worker(first, "w1@host.intern/7")
    assert named not in (disclosed_worker(first, "w2@host.intern/7"), disclosed_worker(second, "w1@host.intern/7"))
    assert "host" not in named
    assert len(named) <= 16


def test_a_disclosed_spec_differs_in_names_alone() -> None:
    lists = (
        DropList(uri="/home/me/optout.txt", column="url", sha256="ab", values=2),
        DropList(uri="hf://datasets/me/lists@0123abc/ids.csv", field="id", column="id", sha256="cd", values=3),
    )
    spec = a_spec(
        input_uris=("/home/me/shards",),
        output_uri="/home/me/out",
        model=FOLDER_MODEL,
        scores_from=FOLDER_MODEL,
        drop_lists=lists,
    )

    disclosed = disclosed_spec(spec)

    assert "/home/me" not in disclosed.to_json().decode()
    assert disclosed.drop_lists == (replace(lists[0], uri="optout.txt"), lists[1])
    restored = replace(
        disclosed,
        input_uris=spec.input_uris,
        output_uri=spec.output_uri,
        scorings=spec.scorings,
        drop_lists=lists,
    )
    assert restored == spec
