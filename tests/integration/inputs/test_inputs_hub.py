"""Inputs on the Hub: pinned to the commit, or refused in one line."""

import hashlib
from collections.abc import Iterator
from typing import Any

import pytest
from huggingface_hub import close_session, constants

from hubserver import HubServer
from shardsift.fleet.errors import ShardsiftError, TransientError
from shardsift.fleet.inputs.identity import identity_now
from shardsift.fleet.inputs.open_input import open_input
from shardsift.fleet.run.spec import Shard
from shardsift.fleet.storage.errors import translated
from shardsift.fleet.storage.hub_files import HubFiles
from shardsift.producer.planning.inputs import count_rows, crawl_input, list_input
from support.input_shards import names, shard
from support.line_files import write_json_lines

CRAWLS = ("CC-MAIN-2024-10", "CC-MAIN-2024-18")
GATED = {"X-Error-Code": "GatedRepo"}
JSON = {"status": 200, "headers": {"Content-Type": "application/json"}}
REPO = "HuggingFaceFW/fineweb"
URI = f"hf://datasets/{REPO}"
LINES = "en/c4-train.00000-of-00001.json.gz"


@pytest.fixture(scope="module")
def running_hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubServer]:
    folder = tmp_path_factory.mktemp("dataset")
    for crawl in CRAWLS:
        for number in range(2):
            shard(folder / f"data/{crawl}/000_{number:05}.parquet", 10)
    shard(folder / "sample/10BT/000.parquet", 5)
    write_json_lines(folder / LINES, [{"text": "a"}] * 7)
    with HubServer() as hub:
        for repo in (REPO, "data/data"):
            hub.create_repo(repo)
            hub.add_folder(repo, folder)
        yield hub


@pytest.fixture(autouse=True)
def new_client() -> None:
    """As in a new process, nothing that the Hub told is known."""
    HubFiles.clear_instance_cache()


def test_a_crawl_is_pinned_to_a_commit_and_names_mirror_its_folder(hub: HubServer) -> None:
    source = crawl_input(CRAWLS[0])

    commit, first, path = hub.commits(REPO)[0].oid, source.shards[0], f"data/{CRAWLS[0]}/000_00000.parquet"
    assert source.revision == commit
    assert source.uris == (f"{URI}@{commit}/data/{CRAWLS[0]}/*.parquet",)
    assert [shard.name for shard in source.shards] == [f"{CRAWLS[0]}/000_0000{number}" for number in range(2)]
    assert (first.uri, first.size_bytes) == (f"{URI}@{commit}/{path}", hub.files(REPO)[path])
    assert first.identity == f"sha256:{hashlib.sha256(hub.read(REPO, path)).hexdigest()}"
    assert [identity_now(shard.uri)[0] for shard in source.shards] == [shard.identity for shard in source.shards]
    assert count_rows(source.shards) == 20


def test_other_forms_of_a_uri_find_the_same_files_and_names(hub: HubServer) -> None:
    both = [f"{CRAWLS[1]}/000_00000", f"{CRAWLS[1]}/000_00001"]
    assert names(f"{URI}/data") == [f"{crawl}/000_0000{number}" for crawl in CRAWLS for number in range(2)]
    assert names(f"{URI}@main/data/{CRAWLS[1]}") == names(f"hf://datasets/data/data/data/{CRAWLS[1]}") == both
    assert names(f"{URI}/data/{CRAWLS[1]}/000_00001.parquet") == both[1:]
    assert names(f"{URI}/sample/10BT") == ["000"]
    (lines,) = list_input(f"{URI}/en/*.json.gz").shards
    assert (lines.name, count_rows((lines,))) == ("c4-train.00000-of-00001", 7)
    kinds = ("sha256:" + hashlib.sha256(hub.read(REPO, LINES)).hexdigest(), "git:")  # a small file may not be in LFS
    assert identity_now(lines.uri)[0].startswith(kinds)


@pytest.mark.usefixtures("hub")
def test_what_the_hub_does_not_have_is_reported_with_what_there_is() -> None:
    with pytest.raises(
        ShardsiftError, match=r"^The crawl 'CC-MAIN-1999-01' cannot be read\. The crawls are listed at "
    ):
        crawl_input("CC-MAIN-1999-01")
    for uri, says in (
        ("hf://datasets/org/nowhere/data", "^The Hub shows no such repository to this HF_TOKEN: hf://datasets/org/now"),
        (f"{URI}@nope/data", "^The Hub shows no such revision to this HF_TOKEN: "),
        (f"{URI}/data/nope/*.parquet", "No input files at"),
        (f"{URI}/data/nope", "/data/nope"),
        ("hf://nowhere", "^hf://nowhere cannot be read: Repository id must be 'namespace/name'"),
    ):
        with pytest.raises(ShardsiftError, match=says):
            list_input(uri)


def look_at_all(shards: tuple[Shard, ...]) -> None:
    count_rows(shards)
    for found in shards:
        identity_now(found.uri)


@pytest.mark.parametrize(
    ("path", "fault", "says"),
    [
        (f"/api/datasets/{REPO}", {"status": 403, "headers": GATED}, "this repository is gated. Accept its terms"),
        (f"/datasets/{REPO}/resolve/", {"status": 403, "headers": GATED}, "this repository is gated. Accept"),
        (f"/api/datasets/{REPO}/tree/", {**JSON, "body": b'{"error": "login"}'}, "the Hub's answer"),
    ],
)
def test_what_the_hub_answers_instead_is_reported(hub: HubServer, path: str, fault: dict[str, Any], says: str) -> None:
    hub.fault(path, times=9, **fault)

    with pytest.raises(ShardsiftError, match=says) as told:
        look_at_all(list_input(f"{URI}/data").shards)

    hub.forget_faults()
    assert URI in str(told.value)


@pytest.mark.usefixtures("hub")
def test_a_hub_that_cannot_be_asked_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    close_session()

    with pytest.raises(ShardsiftError, match=f"^Listing {URI}/data.*the network failed") as told:
        list_input(f"{URI}/data")

    assert "\n" not in str(told.value)


@pytest.mark.parametrize(
    ("file", "body", "rows"),
    [
        (LINES, b"<!DOCTYPE html><title>Sign in to the network</title>", 7),
        (f"data/{CRAWLS[0]}/000_00000.parquet", b"", 10),
    ],
)
def test_an_answer_that_is_not_the_files_bytes_is_asked_for_again(
    hub: HubServer, file: str, body: bytes, rows: int
) -> None:
    def read() -> int:
        with open_input(f"{URI}/{file}") as opened, translated(f"Reading {file}"):
            return sum(map(len, opened.batches()))

    hub.fault(f"/resolve/.*{file}", method="GET", status=200, body=body)

    with pytest.raises(TransientError, match="the network failed"):
        read()

    assert read() == rows
