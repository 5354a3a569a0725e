"""The card of a published run says how good its filter is, as soon as rows of it are labelled, and a repair keeps it."""

import csv
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from celery import Celery
from typer.testing import CliRunner

from shardsift.fleet.errors import UsageError
from shardsift.fleet.process.settings import Settings
from shardsift.fleet.storage.open_output import content_at, published_at
from shardsift.fleet.storage.output import CARD_PATH, MANIFEST_PATH
from shardsift.producer.cli import cli
from shardsift.producer.local.demo_data import write_shards
from shardsift.producer.planning.enqueue import enqueue
from shardsift.producer.planning.plan import plan_run
from shardsift.producer.publishing.publish import inspect_and_repair
from shardsift.producer.verify.verify import verify
from support.outputs import Published, published_rows
from support.small_run import Runs

NO_EVIDENCE = "There is no evidence yet."
FILES = ["folder", "hub"]


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("source") / "shards"
    write_shards(folder, shards=3, rows=40, seed=4)
    return folder


@dataclass(frozen=True)
class Dataset:
    """A published run that keeps rows by one threshold, and its commands."""

    files: Published
    runs: Runs
    source: Path
    folder: Path
    threshold: float
    lower: float  # another threshold

    @property
    def uri(self) -> str:
        return self.files.uri

    @property
    def options(self) -> dict[str, Any]:
        return {"output_uri": self.uri, "min_score": self.threshold}

    @property
    def run_id(self) -> str:
        return plan_run(self.runs.options(self.source, **self.options)).spec.run_id

    @property
    def card(self) -> str:
        return self.files.read(CARD_PATH).decode()

    def labelled(self, name: str, good: Callable[[int], bool]) -> Path:
        """Draw rows, and label them by their numbers."""
        file = self.folder / name
        produce("sample", self.uri, "--rows", "60", "--input", str(self.source), "--output", str(file))
        with file.open() as lines:
            rows = list(csv.DictReader(lines))
        with file.open("w") as lines:
            sheet = csv.DictWriter(lines, rows[0])
            sheet.writeheader()
            sheet.writerows(row | {"label": str(int(good(int(row["row"]))))} for row in rows)
        return file

    def repair(self, *lost: str) -> None:
        for path in lost:
            self.files.delete(path)
        inspect_and_repair(self.runs.ledger, self.run_id, hashes=False)


def produce(*command: str) -> str:
    done = CliRunner().invoke(cli, [*command], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


def section(card: str) -> str:
    (found,) = re.findall(r"\n## How good is this filter\?\n(.*?)\n## ", card, re.DOTALL)
    return str(found)


def rest(card: str) -> str:
    return card.replace(section(card), "")


@pytest.fixture
def dataset(
    runs: Runs, source: Path, tmp_path: Path, redis_url: str, monkeypatch: pytest.MonkeyPatch, files: Published
) -> Dataset:
    monkeypatch.setenv("REDIS_URL", redis_url)
    scores = published_rows(runs.publish(source, "all"), "scores")["score"].to_pylist()
    found = Dataset(files, runs, source, tmp_path, sorted(scores)[80], sorted(scores)[40])
    runs.publish(source, **found.options)
    return found


@pytest.mark.parametrize("files", FILES, indirect=True)
def test_the_card_gets_the_figures_of_each_set_of_labels_and_nothing_else_changes(dataset: Dataset) -> None:
    uri, threshold = dataset.uri, dataset.threshold
    before, commits = dataset.card, dataset.files.commits()
    odd, few = (
        dataset.labelled("odd.csv", lambda row: row % 2 == 1),
        dataset.labelled("few.csv", lambda row: row % 7 == 0),
    )
    assert NO_EVIDENCE in section(before)

    produce("evaluate", uri, "--labels", str(odd), "--update-card")
    first = dataset.card
    produce("evaluate", dataset.run_id, "--labels", str(few), "--judge", "a-model", "--update-card")
    second = dataset.card
    produce("evaluate", uri, "--labels", str(few), "--judge", "a-model", "--update-card")

    assert f'rows with `"score" >= {threshold}`, ' in section(first)
    assert "60 rows are labelled" in section(first)
    assert "labels in a file, `odd.csv`, sha256" in section(first)
    assert "agreement with that model, not truth" in section(second)
    assert "`few.csv`" in section(second)
    assert "another run" not in section(first) + section(second)
    assert rest(first) == rest(second) == rest(before)
    assert dataset.card == second
    if commits:  # the last command has found nothing to change
        assert dataset.files.commits() == [{CARD_PATH, MANIFEST_PATH}, {CARD_PATH, MANIFEST_PATH}, *commits]
    checked = verify(uri, source=(str(dataset.source),))
    assert (checked.faults, checked.edited) == ((), ())

    for lost in ([CARD_PATH], [CARD_PATH, MANIFEST_PATH]):
        dataset.repair(*lost)
        assert dataset.card == second


@pytest.mark.parametrize("files", FILES, indirect=True)
def test_an_edited_card_gets_the_figures_and_stays_as_its_owner_wrote_it(dataset: Dataset) -> None:
    dataset.files.write(CARD_PATH, dataset.card.replace("## How it was made", "## Mine\n\nBy me.").encode())
    before, labels = dataset.card, dataset.labelled("odd.csv", lambda row: row % 2 == 1)

    produce("evaluate", dataset.uri, "--labels", str(labels), "--update-card")

    assert "labels in a file, `odd.csv`" in section(dataset.card)
    assert rest(dataset.card) == rest(before)
    assert verify(dataset.uri).edited == (f"{CARD_PATH} has changed since it was published",)


@pytest.mark.parametrize("files", ["folder"], indirect=True)
def test_an_update_that_was_interrupted_before_the_manifest_is_finished_by_the_next(dataset: Dataset) -> None:
    labels = dataset.labelled("odd.csv", lambda row: row % 2 == 1)
    manifest = dataset.files.read(MANIFEST_PATH)
    produce("evaluate", dataset.uri, "--labels", str(labels), "--update-card")
    dataset.files.write(MANIFEST_PATH, manifest)

    produce("evaluate", dataset.uri, "--labels", str(labels), "--update-card")

    assert (verify(dataset.uri).faults, verify(dataset.uri).edited) == ((), ())


@pytest.mark.parametrize("files", FILES, indirect=True)
def test_a_run_with_evidence_is_the_same_run_and_its_card_says_the_figures_at_its_own_threshold(
    dataset: Dataset, app: Celery
) -> None:
    labels, file = dataset.labelled("odd.csv", lambda row: row % 2 == 1), dataset.folder / "evidence.json"
    produce("evaluate", dataset.uri, "--labels", str(labels), "--at", str(dataset.lower), "--output", str(file))
    plain, plan = (
        plan_run(dataset.runs.options(dataset.source, **dataset.options, **evidence))
        for evidence in ({}, {"evidence": str(file)})
    )

    enqueue(plan, dataset.runs.ledger, app, Settings())
    again = dataset.runs.refilter(
        dataset.uri, min_score=dataset.lower, evidence=str(file), input_uris=(str(dataset.source),)
    )

    assert plan.spec.run_id == plain.spec.run_id
    assert plan.command == plain.command
    assert f'rows with `"score" >= {dataset.threshold}`, ' in section(dataset.card)
    assert f'rows with `"score" >= {dataset.lower}`, ' in section((again / CARD_PATH).read_text())
    assert "another run" not in section((again / CARD_PATH).read_text())
    assert json.loads(file.read_text()) == json.loads(evidence_at(dataset.uri)) == json.loads(evidence_at(str(again)))
    assert str(dataset.folder) not in file.read_text()
    for uri in (dataset.uri, str(again)):
        assert (verify(uri).faults, verify(uri).edited) == ((), ())


@pytest.mark.parametrize("files", ["folder"], indirect=True)
def test_figures_of_another_run_are_said_to_be_of_one_and_another_threshold_is_refused(dataset: Dataset) -> None:
    labels, file = dataset.labelled("odd.csv", lambda row: row % 2 == 1), dataset.folder / "evidence.json"
    produce("evaluate", dataset.uri, "--labels", str(labels), "--output", str(file))
    choice = {"evidence": str(file), "min_score": dataset.threshold}

    other = dataset.runs.publish(dataset.source, "other", limit_rows=90, **choice)

    assert f"measured on rows of another run of the same model, `{dataset.run_id}`" in section(
        (other / CARD_PATH).read_text()
    )
    with pytest.raises(UsageError, match=r"producer evaluate … --at 0\.125 --output FILE"):
        dataset.runs.refilter(Path(dataset.uri), evidence=str(file), min_score=0.125)


def evidence_at(uri: str) -> str:
    published = published_at(uri, content_at(uri, MANIFEST_PATH))
    assert published is not None
    assert published.evidence is not None
    return published.evidence
