"""Inputs on the Hub, listed by a separate process like a user's: pinned to the commit, or refused in one line."""

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hubserver import HubServer
from support.input_shards import shard
from support.line_files import write_json_lines
from support.processes import ask_process

CRAWLS = ("CC-MAIN-2024-10", "CC-MAIN-2024-18")


ASK = """
import json, sys
from dataclasses import asdict
from shardsift.fleet.errors import ShardsiftError
from shardsift.fleet.inputs.identity import identity_now
from shardsift.producer.planning.inputs import count_rows, crawl_input, list_input
answers = []
for kind, *arguments in json.loads(sys.argv[1]):
    try:
        source = {"crawl": crawl_input, "list": list_input}[kind](*arguments)
        now = [identity_now(shard.uri)[0] for shard in source.shards]
        answers.append({**asdict(source), "rows": count_rows(source.shards), "identities_now": now})
    except ShardsiftError as error:
        answers.append({"error": str(error)})
print(json.dumps(answers))
"""
READ = """
import json, sys
from shardsift.fleet.errors import ShardsiftError
from shardsift.fleet.storage.errors import translated
from shardsift.fleet.inputs.open_input import open_input
answers = []
for uri in json.loads(sys.argv[1]):
    try:
        with open_input(uri) as file, translated(f"Reading {uri}"):
            answers.append(sum(map(len, file.batches())))
    except ShardsiftError as error:
        answers.append(f"{type(error).__name__}: {error}")
print(json.dumps(answers))
"""
GATED = {"X-Error-Code": "GatedRepo"}
JSON = {"status": 200, "headers": {"Content-Type": "application/json"}}
REPO = "HuggingFaceFW/fineweb"


def ask(environment: dict[str, str], *questions: tuple[str, ...]) -> list[dict[str, Any]]:
    return ask_process(ASK, questions, environment)


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubServer]:
    folder = tmp_path_factory.mktemp("dataset")
    for crawl in CRAWLS:
        for number in range(2):
            shard(folder / f"data/{crawl}/000_{number:05}.parquet", 10)
    shard(folder / "sample/10BT/000.parquet", 5)
    write_json_lines(folder / "en/c4-train.00000-of-00001.json.gz", [{"text": "a"}] * 7)
    with HubServer() as hub:
        hub.create_repo(REPO)
        hub.add_folder(REPO, folder)
        hub.create_repo("data/data")
        hub.add_folder("data/data", folder)
        yield hub
    assert hub.handler_errors == []


@pytest.fixture
def environment(hub: HubServer, tmp_path: Path) -> dict[str, str]:
    return hub.client_env(tmp_path / "home")


def test_a_crawl_is_pinned_to_a_commit_and_names_mirror_its_folder(hub: HubServer, environment: dict[str, str]) -> None:
    (source,) = ask(environment, ("crawl", CRAWLS[0]))

    commit = hub.commits(REPO)[0].oid
    assert source["revision"] == commit
    assert source["uris"] == [f"hf://datasets/{REPO}@{commit}/data/{CRAWLS[0]}/*.parquet"]
    assert [shard["name"] for shard in source["shards"]] == [f"{CRAWLS[0]}/000_0000{i}" for i in range(2)]
    assert source["shards"][0]["uri"] == f"hf://datasets/{REPO}@{commit}/data/{CRAWLS[0]}/000_00000.parquet"
    assert source["shards"][0]["size_bytes"] == hub.files(REPO)[f"data/{CRAWLS[0]}/000_00000.parquet"]
    assert source["rows"] == 20
    assert source["identities_now"] == [shard["identity"] for shard in source["shards"]]
    content = hub.read(REPO, f"data/{CRAWLS[0]}/000_00000.parquet")
    assert source["shards"][0]["identity"] == f"sha256:{hashlib.sha256(content).hexdigest()}"


def test_other_forms_of_a_uri_find_the_same_files_and_names(hub: HubServer, environment: dict[str, str]) -> None:
    whole, folder, file, sample, lines, named_data = ask(
        environment,
        ("list", f"hf://datasets/{REPO}/data"),
        ("list", f"hf://datasets/{REPO}@main/data/{CRAWLS[1]}"),
        ("list", f"hf://datasets/{REPO}/data/{CRAWLS[1]}/000_00001.parquet"),
        ("list", f"hf://datasets/{REPO}/sample/10BT"),
        ("list", f"hf://datasets/{REPO}/en/*.json.gz"),
        ("list", f"hf://datasets/data/data/data/{CRAWLS[1]}"),
    )

    both = [f"{CRAWLS[1]}/000_00000", f"{CRAWLS[1]}/000_00001"]
    assert [shard["name"] for shard in whole["shards"]] == [
        f"{crawl}/000_0000{number}" for crawl in CRAWLS for number in range(2)
    ]
    assert [shard["name"] for shard in folder["shards"]] == both
    assert [shard["name"] for shard in file["shards"]] == both[1:]
    assert [shard["name"] for shard in sample["shards"]] == ["000"]
    assert [shard["name"] for shard in lines["shards"]] == ["c4-train.00000-of-00001"]
    assert lines["rows"] == 7
    content = hub.read(REPO, "en/c4-train.00000-of-00001.json.gz")
    kinds = ("sha256:" + hashlib.sha256(content).hexdigest(), "git:")  # a small file may not be in LFS
    assert lines["identities_now"][0].startswith(kinds)
    assert [shard["name"] for shard in named_data["shards"]] == both


def test_what_the_hub_does_not_have_is_reported_with_what_there_is(environment: dict[str, str]) -> None:
    crawl, dataset, revision, empty, path, no_repository = (
        answer["error"]
        for answer in ask(
            environment,
            ("crawl", "CC-MAIN-1999-01"),
            ("list", "hf://datasets/org/nowhere/data"),
            ("list", f"hf://datasets/{REPO}@nope/data"),
            ("list", f"hf://datasets/{REPO}/data/nope/*.parquet"),
            ("list", f"hf://datasets/{REPO}/data/nope"),
            ("list", "hf://nowhere"),
        )
    )

    assert crawl.startswith(
        "The crawl 'CC-MAIN-1999-01' cannot be read. The crawls are listed at https://huggingface.co/"
    )
    assert dataset.startswith("The Hub shows no such repository to this HF_TOKEN: hf://datasets/org/nowhere/")
    assert revision.startswith("The Hub shows no such revision to this HF_TOKEN: ")
    assert "No input files at" in empty
    assert "/data/nope" in path
    assert no_repository.startswith("hf://nowhere cannot be read: Repository id must be 'namespace/name'")


@pytest.mark.parametrize(
    ("path", "fault", "says"),
    [
        (f"/api/datasets/{REPO}", {"status": 403, "headers": GATED}, "this repository is gated. Accept its terms"),
        (f"/datasets/{REPO}/resolve/", {"status": 403, "headers": GATED}, "this repository is gated. Accept"),
        (f"/api/datasets/{REPO}", {**JSON, "body": b"[]"}, "the Hub's answer cannot be used"),
        (f"/api/datasets/{REPO}/tree/", {**JSON, "body": b'{"error": "login"}'}, "the Hub's answer"),
    ],
)
def test_what_the_hub_answers_instead_is_reported(
    hub: HubServer, environment: dict[str, str], path: str, fault: dict[str, Any], says: str
) -> None:
    hub.fault(path, times=9, **fault)

    (answer,) = ask(environment, ("list", f"hf://datasets/{REPO}/data"))

    hub.forget_faults()
    assert says in answer["error"]
    assert f"hf://datasets/{REPO}" in answer["error"]


def test_a_hub_that_cannot_be_asked_is_one_line(environment: dict[str, str]) -> None:
    (answer,) = ask({**environment, "HF_HUB_OFFLINE": "1"}, ("list", f"hf://datasets/{REPO}/data"))

    assert answer["error"].startswith(f"Listing hf://datasets/{REPO}/data")
    assert "the network failed" in answer["error"]
    assert "\n" not in answer["error"]


@pytest.mark.parametrize(
    ("file", "body"),
    [
        ("en/c4-train.00000-of-00001.json.gz", b"<!DOCTYPE html><title>Sign in to the network</title>"),
        (f"data/{CRAWLS[0]}/000_00000.parquet", b""),
    ],
)
def test_an_answer_that_is_not_the_files_bytes_is_asked_for_again(
    hub: HubServer, environment: dict[str, str], file: str, body: bytes
) -> None:
    hub.fault(f"/resolve/.*{file}", method="GET", status=200, body=body)

    first, second = ask_process(READ, [f"hf://datasets/{REPO}/{file}"] * 2, environment)

    assert first.startswith("TransientError")
    assert "the network failed" in first
    assert second == (7 if file.endswith(".gz") else 10)
