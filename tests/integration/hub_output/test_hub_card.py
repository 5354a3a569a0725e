"""The card carries over what the Hub's cards of the source and the model say, and never keeps a run from being published."""

from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import yaml
from huggingface_hub import HfApi

from hubserver import HubServer
from shardsift.producer.publishing.hub_cards import NO_CARDS, read_hub_cards
from support.hub_runs import SHARDS, HubRun
from support.records import a_spec

_numbers = count()
SOURCE = """---
license: odc-by
language: [en, de]
task_categories: [text-generation, fill-mask]
task_ids: [language-modeling]
tags: [web, shardsift]
pretty_name: Theirs
configs: [{config_name: theirs, data_files: theirs.parquet}]
---
# Theirs
"""


@pytest.fixture
def source(hub: HubServer, tmp_path: Path) -> str:
    return add_card(hub, f"ada/web-{next(_numbers)}", "dataset", SOURCE, tmp_path / "source")


@pytest.fixture
def spec(hub: HubServer, repo: str, source: str, tmp_path: Path) -> Any:
    model = add_card(hub, f"ada/model-{next(_numbers)}", "model", "---\nlicense: mit\n---\n# M", tmp_path / "model")
    spec = a_spec(input_uris=(f"hf://datasets/{source}/data/*.parquet",), output_uri=f"hf://datasets/{repo}")
    (scoring,) = spec.scorings
    name, _, revision = model.partition("@")
    return replace(spec, scorings=(replace(scoring, model=replace(scoring.model, name=name, revision=revision)),))


def add_card(hub: HubServer, name: str, kind: Any, card: str, folder: Path) -> str:
    """Make a repository with this card. Returns NAME@COMMIT; its main has another card by then."""
    hub.create_repo(name, kind)
    folder.mkdir()
    for content in (card, "---\nlicense: cc-by-nc-4.0\n---\n# Later"):
        (folder / "README.md").write_text(content)
        hub.add_folder(name, folder, repo_type=kind, message="a card")
    return f"{name}@{hub.commits(name, kind)[1].oid}"


def published(run: HubRun) -> tuple[dict[str, Any], str]:
    """The metadata and the text of the card."""
    run.ledger.create_run(run.spec, SHARDS[:1], now=1.0)
    run.score(*SHARDS[:1])
    run.publish()
    _, header, text = run.hub.read(run.repo, "README.md").decode().split("---\n", 2)
    return yaml.safe_load(header), text


def test_licence_language_and_tasks_are_those_of_the_source_at_the_revision_that_was_read(run: HubRun) -> None:
    metadata, text = published(run)

    assert (metadata["license"], metadata["language"]) == ("odc-by", ["en", "de"])
    assert metadata["task_categories"] == ["text-generation", "fill-mask"]
    assert metadata["task_ids"] == ["language-modeling"]
    assert metadata["tags"] == ["shardsift", "web"]
    assert [config["config_name"] for config in metadata["configs"]] == ["default", "scores"]
    assert "and their licence is `odc-by`." in text
    assert ", whose licence is `mit`.\n" in text


def test_metadata_that_the_hub_refuses_are_left_out(run: HubRun) -> None:
    run.hub.fault("/api/validate-yaml", method="POST", status=400, body=b'{"errors": [], "warnings": []}')

    metadata, text = published(run)

    assert "license" not in metadata
    assert metadata["task_categories"] == ["text-generation"]
    assert "and their licence is unknown: see the source." in text


@pytest.mark.parametrize("status", [404, 429, 503])
def test_a_run_is_published_without_the_cards_if_they_cannot_be_read(run: HubRun, source: str, status: int) -> None:
    name, _, commit = source.partition("@")
    run.hub.fault(f"/api/datasets/{name}/revision/{commit}", status=status)

    metadata, _ = published(run)

    assert "license" not in metadata


def test_a_private_sources_card_is_not_told(run: HubRun) -> None:
    private = f"ada/private-{next(_numbers)}"
    HfApi().create_repo(private, repo_type="dataset", private=True)
    HfApi().upload_file(path_or_fileobj=SOURCE.encode(), path_in_repo="README.md", repo_id=private, repo_type="dataset")

    assert read_hub_cards(a_spec(input_uris=(f"hf://datasets/{private}/data/*.parquet",))) == NO_CARDS
