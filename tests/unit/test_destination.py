"""The output of a run: the repository of a crawl if the user names none, and what cannot be an output or input."""

from pathlib import Path

import pytest
from huggingface_hub.utils._validators import validate_repo_id

from shardsift.fleet.errors import UsageError
from shardsift.producer.planning.destination import check_output_place, default_repo_id
from shardsift.producer.planning.layout import check_layout, twins_line
from support.records import a_shard, a_spec

EDU = "HuggingFaceFW/fineweb-edu-classifier"


def repo_id(user: str = "me", model: str = EDU, *crawls: str) -> str:
    return default_repo_id(user, crawls=crawls or ("CC-MAIN-2024-10",), model=model)


@pytest.mark.parametrize(
    "model",
    [
        "/models/my classifier (v2)/",
        "/модели/классификатор",
        "org/" + "a" * 49 + "-" * 3 + "b" * 49,
    ],
)
@pytest.mark.parametrize("user", ["me", "a-user-with-a-name-of-forty-characters-x"])
def test_the_hub_takes_the_default_repository_whatever_the_model_is_called(user: str, model: str) -> None:
    name = repo_id(user, model=model)

    validate_repo_id(name)
    assert len(name) <= 96
    assert name.startswith(f"{user}/fineweb-CC-MAIN-2024-10")


def test_the_default_repository_of_several_crawls_names_none() -> None:
    assert repo_id("me", EDU, "CC-MAIN-2024-10", "CC-MAIN-2024-18") == "me/fineweb-fineweb-edu-classifier"


@pytest.mark.parametrize(
    ("output", "public", "says"),
    [
        ("ftp://host/folder", False, "--output ftp://host/folder is of a kind that cannot be written to"),
        ("s3://bucket/out", False, "--output s3://bucket/out cannot be used: Install s3fs"),
        *(
            (uri, True, f"written hf://datasets/.*, not {uri}")
            for uri in ("hf://datasets/one-name", "hf://buckets/one-name")
        ),
        ("out", True, "--public is for an output on the Hub"),
        ("hf:/datasets/me/kept", False, "Write hf://datasets/me/kept, or ./hf:/datasets/me/kept for that folder"),
        ("file:/data/out", False, "Write file:///data/out, or"),
    ],
)
def test_a_place_that_cannot_be_used_is_refused_in_one_line(output: str, public: bool, says: str) -> None:
    with pytest.raises(UsageError, match=says) as refused:
        check_output_place(output, public=public)

    assert "\n" not in str(refused.value)


def test_a_link_to_a_folder_that_is_not_there_is_refused(tmp_path: Path) -> None:
    link, folder = tmp_path / "out", tmp_path / "disk"
    link.symlink_to(folder)

    with pytest.raises(UsageError, match=rf"out is a link to {folder}, which is not there\. Create that folder\."):
        check_output_place(str(link))

    folder.mkdir()
    check_output_place(str(link))


@pytest.mark.parametrize(
    ("file", "below"), [("x", "x.parquet/y"), ("a/x", "a/x.parquet/b/y"), ("x.part-00000", "x.part-00000.parquet/y")]
)
def test_a_file_and_a_folder_of_one_path_are_refused_before_any_is_scored(file: str, below: str) -> None:
    for names in ((file, below), (below, "z", file)):
        with pytest.raises(UsageError, match=f"would be published as data/{file}.parquet, which is a folder"):
            check_layout(a_spec(), tuple(map(a_shard, names)))
    assert check_layout(a_spec(), (a_shard(file), a_shard(f"{file}/y"), a_shard(f"{file}.parquet"))) is not None


def test_names_that_some_disks_do_not_tell_apart_are_reported() -> None:
    assert twins_line([a_shard("A/x"), a_shard("b"), a_shard("a/X")])[0].startswith(
        "A/x and a/X are one name on disks of"
    )
    assert twins_line([a_shard("e\u0301"), a_shard("\u00e9")])
    assert twins_line([a_shard("a"), a_shard("b"), a_shard("a/b")]) == []


def test_more_files_in_a_folder_than_the_hub_takes_are_refused_before_any_is_scored() -> None:
    shards = [a_shard(f"{folder}/{number:05}") for folder in ("a", "b") for number in range(10_000)]
    spec = a_spec(output_uri="hf://datasets/me/out")

    assert check_layout(spec, (*shards,)) is not None
    with pytest.raises(UsageError, match=r"10,000 files in a folder, and data/b would have 10,001\. Merge them by"):
        check_layout(spec, (*shards, a_shard("b/more")))
    assert check_layout(a_spec(output_uri="/out"), (*shards, a_shard("b/more"))) is not None
    merged = a_spec(output_uri="hf://datasets/me/out", target_file_bytes=100_000)  # shards have 1,000 bytes
    assert check_layout(merged, (*shards, a_shard("b/more"))) is not None
    with pytest.raises(UsageError, match="data/b would have 10,800"):
        check_layout(merged, tuple(a_shard(f"b/{number:05}", size_bytes=45_000) for number in range(12_000)))
