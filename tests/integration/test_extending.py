"""`--extend` adds the files that a published dataset does not have, and what is published is that of one run over all."""

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from hubserver import HubServer
from shardsift.fleet.errors import NothingToAdd, UsageError
from shardsift.fleet.run.receipt import Receipts
from shardsift.fleet.scorers.stored_scores import published_run
from shardsift.fleet.storage.folder import FolderOutput
from shardsift.fleet.storage.inspection import Finding
from shardsift.fleet.storage.open_output import open_output
from shardsift.producer.cli import cli
from shardsift.producer.local.demo_data import write_shards
from shardsift.producer.planning.plan import plan_run
from shardsift.producer.publishing.publish import finalize_run, inspect_and_repair
from shardsift.producer.verify.verify import verify
from support.outputs import data_digests, published_rows
from support.published_dataset import Dataset
from support.small_run import Runs, score

SHARDS, ROWS = 5, 30


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return write_shards(tmp_path_factory.mktemp("files"), shards=SHARDS, rows=ROWS, seed=5)


@pytest.fixture
def source(files: list[Path], tmp_path: Path) -> Path:
    """The input of the first run: three of the files."""
    folder = tmp_path / "input"
    folder.mkdir()
    for file in files[:3]:
        shutil.copy(file, folder)
    return folder


@pytest.fixture
def grow(files: list[Path], source: Path) -> Callable[[int], None]:
    def add(number: int) -> None:
        shutil.copy(files[number], source)

    return add


def extend(runs: Runs, source: Path, **options: Any) -> Path:
    return runs.publish(source, extends=True, **{"where": "score > 0.1", **options})


def run_ids(output: Path) -> tuple[str, ...]:
    return Dataset(output, output).manifest.run_ids


@pytest.mark.parametrize("size", ["none", "1MB"])
def test_an_extended_dataset_is_that_of_one_run_over_all_files(
    size: str, runs: Runs, source: Path, grow: Callable[[int], None]
) -> None:
    out = runs.publish(source, where="score > 0.1", target_file_size=size)
    first = data_digests(out)
    for number in (3, 4):
        grow(number)
        extend(runs, source, target_file_size=size)
    whole = runs.publish(source, "whole", where="score > 0.1", target_file_size="none")

    assert {path: data_digests(out).get(path) for path in first} == first
    assert published_rows(out).equals(published_rows(whole))
    assert published_rows(out, "scores").equals(published_rows(whole, "scores"))
    assert size != "none" or data_digests(out) == data_digests(whole)
    assert len(run_ids(out)) == 3
    checked = verify(str(out), source=(str(source),))
    assert (checked.faults, checked.shards, checked.not_compared) == ((), SHARDS, ())


def test_the_same_command_twice_is_one_run_and_says_nothing_to_add_once_a_file_has_gone(
    runs: Runs, source: Path, grow: Callable[[int], None]
) -> None:
    out = runs.publish(source, where="score > 0.1")
    first = plan_run(runs.options(source, extends=True, where="score > 0.1"))
    grow(3)
    planned = plan_run(runs.options(source, extends=True, where="score > 0.1"))
    extend(runs, source)
    files = data_digests(out)

    again = plan_run(runs.options(source, extends=True, where="score > 0.1"))

    assert (first.spec.run_id, again.spec.run_id) == run_ids(out)
    assert (planned.spec, planned.shards) == (again.spec, again.shards)
    min(source.iterdir()).unlink()
    assert plan_run(runs.options(source, extends=True, where="score > 0.1")).spec == again.spec
    max(source.iterdir()).unlink()
    with pytest.raises(NothingToAdd, match="4 shards"):
        extend(runs, source)
    assert data_digests(out) == files
    assert Dataset(source, out).faults() == []


def test_a_run_that_is_under_way_takes_further_files_that_come_meanwhile(
    runs: Runs, source: Path, grow: Callable[[int], None]
) -> None:
    runs.publish(source, where="score > 0.1")
    grow(3)
    begun = plan_run(runs.options(source, extends=True, where="score > 0.1"))

    grow(4)
    more = plan_run(runs.options(source, extends=True, where="score > 0.1"))

    assert more.spec == begun.spec
    assert len(more.shards) == 2


class TestRefusals:
    @pytest.mark.parametrize(
        ("options", "differing"),
        [
            ({"where": "score > 0.2"}, "the filter"),
            ({"target_file_size": "1MB"}, "--target-file-size"),
            ({"max_tokens": 7}, "max tokens"),
        ],
    )
    def test_other_options_are_refused_by_their_names(
        self, options: dict[str, Any], differing: str, runs: Runs, source: Path, grow: Callable[[int], None]
    ) -> None:
        out = runs.publish(source, where="score > 0.1")
        grow(3)

        with pytest.raises(UsageError, match=f"What differs: {differing}\\."):
            extend(runs, source, **options)

        assert len(run_ids(out)) == 1

    def test_an_output_without_a_dataset_is_refused(self, runs: Runs, source: Path) -> None:
        with pytest.raises(UsageError, match="Nothing is published at .* Leave it out the first time"):
            extend(runs, source)

    def test_files_that_are_published_under_another_name_are_refused(self, runs: Runs, source: Path) -> None:
        runs.publish(source, where="score > 0.1")

        with pytest.raises(UsageError, match="its bytes are published as 000_00000.*twice"):
            extend(runs, source, input_uris=(f"{source.parent}/inp*/*.parquet",))

    def test_a_changed_file_is_refused_by_name(self, runs: Runs, source: Path, files: list[Path]) -> None:
        out = runs.publish(source, where="score > 0.1")
        shutil.copy(files[4], source / files[1].name)

        with pytest.raises(UsageError, match=f"1 published file changed: {files[1].stem}. .*--changed score"):
            extend(runs, source)

        assert len(run_ids(out)) == 1


@pytest.mark.parametrize("size", ["none", "1MB"])
def test_changed_and_damaged_shards_are_scored_again_in_place_of_the_old_with_all_that_share_their_files(
    size: str, runs: Runs, source: Path, files: list[Path], grow: Callable[[int], None]
) -> None:
    out = runs.publish(source, where="score > 0.1", target_file_size=size)
    shutil.copy(files[4], source / files[1].name)
    (out / "data" / f"{files[0].stem}.parquet").unlink()
    grow(3)

    extend(runs, source, target_file_size=size, changed="score")
    whole = runs.publish(source, "whole", where="score > 0.1", target_file_size="none")

    assert published_rows(out).equals(published_rows(whole))
    assert published_rows(out, "scores").equals(published_rows(whole, "scores"))
    checked = verify(str(out), source=(str(source),))
    assert (checked.faults, checked.shards, checked.not_compared) == ((), 4, ())
    first, second = run_ids(out)
    assert inspect(runs, first) == inspect(runs, second) == []


@pytest.mark.parametrize("has_hidden_files", [True, False])  # of the base, which `cp -r out/* elsewhere` leaves out
@pytest.mark.parametrize("is_lost_before", [True, False])
def test_a_manifest_that_is_lost_before_or_after_an_extension_is_published_is_restored_whole(
    is_lost_before: bool, has_hidden_files: bool, runs: Runs, source: Path, grow: Callable[[int], None]
) -> None:
    out = runs.publish(source, where="score > 0.1")
    if not has_hidden_files:
        shutil.rmtree(out / ".shardsift")
    grow(3)
    begun = begin(runs, source)
    if is_lost_before:
        (out / "manifest.parquet").unlink()

    finalize_run(runs.ledger, begun, without_failed=False)
    for repairing in () if is_lost_before else run_ids(out):
        (out / "manifest.parquet").unlink()
        inspect_and_repair(runs.ledger, repairing, hashes=True)

    assert Dataset(source, out).faults(with_source=True) == []
    assert len(run_ids(out)) == 2
    assert plan_run(runs.options(source, extends=True, where="score > 0.1")).spec.run_id == begun


def test_an_extension_of_a_dataset_that_is_gone_is_not_published_alone(
    runs: Runs, source: Path, grow: Callable[[int], None]
) -> None:
    out = runs.publish(source, where="score > 0.1")
    grow(3)
    shutil.copytree(out, out.with_name("backup"))
    plan = plan_run(runs.options(source, extends=True, where="score > 0.1"))
    runs.ledger.create_run(plan.spec, plan.shards, now=1.0)
    shutil.rmtree(out)
    score(runs.ledger, runs.scorer, plan.spec, plan.shards, scratch=out.with_name("scratch"))

    with pytest.raises(UsageError, match="that this run adds to is gone. Restore it"):
        finalize_run(runs.ledger, plan.spec.run_id, without_failed=False)

    shutil.copytree(out.with_name("backup"), out, dirs_exist_ok=True)
    finalize_run(runs.ledger, plan.spec.run_id, without_failed=False)
    assert Dataset(source, out).faults(with_source=True) == []


def test_a_damaged_file_of_the_base_is_scored_again_by_the_same_command_as_a_further_run(
    runs: Runs, source: Path, grow: Callable[[int], None]
) -> None:
    out = runs.publish(source, where="score > 0.1")
    grow(3)
    extend(runs, source)
    whole, before = data_digests(out), run_ids(out)
    (out / "data" / min(path.name for path in source.iterdir())).write_bytes(b"")

    extend(runs, source)

    assert data_digests(out) == whole
    assert (run_ids(out)[:2], len(run_ids(out))) == (before, 3)
    assert plan_run(runs.options(source, extends=True, where="score > 0.1")).spec.run_id == run_ids(out)[-1]
    assert Dataset(source, out).faults(with_source=True) == []


@pytest.mark.parametrize(
    "options",
    [
        {"where": "score > 0.3"},
        {"buckets": 3, "keep_all": True},
        pytest.param({"unique": True}, marks=pytest.mark.slow),
    ],
)
def test_a_refilter_reads_the_scores_of_all_runs_though_further_files_have_come(
    options: dict[str, Any], runs: Runs, source: Path, grow: Callable[[int], None]
) -> None:
    out = runs.publish(source, where="score > 0.1")
    grow(3)
    extend(runs, source)
    whole = runs.refilter(runs.publish(source, "whole", where="score > 0.1"), "expected", **options)
    grow(4)

    again = runs.refilter(out, input_uris=(str(source),), **options)

    assert data_digests(again) == data_digests(whole)
    assert 0 < published_rows(again).num_rows <= 4 * ROWS


def test_a_refilter_in_place_replaces_all_runs_of_a_dataset(
    runs: Runs, source: Path, grow: Callable[[int], None], hub: HubServer
) -> None:
    hub.create_repo("org/grown")
    uri = "hf://datasets/org/grown"
    runs.publish(source, where="score > 0.1", output_uri=uri, target_file_size="none")
    grow(3)
    extend(runs, source, output_uri=uri, target_file_size="none")
    whole = runs.publish(source, "whole", where="score > 0.3")

    before = published_run(uri).run_ids
    runs.refilter(uri, input_uris=(str(source),), where="score > 0.3", replaces=True)

    files = {path: hashlib.sha256(hub.read("org/grown", path)).hexdigest() for path in hub.files("org/grown")}
    assert {path: files[path] for path in files if "/" in path} == data_digests(whole)
    (run_id,) = published_run(uri).run_ids
    assert run_id not in before
    assert verify(uri, source=(str(source),)).faults == ()


def test_an_extension_published_while_its_base_is_repaired_loses_no_line_and_no_file(
    runs: Runs, source: Path, grow: Callable[[int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The repair has read the manifest when the extension writes it."""
    out = runs.publish(source, where="score > 0.1")
    grow(3)
    extension = begin(runs, source)
    (out / "README.md").unlink()
    (base,) = run_ids(out)
    publish = FolderOutput.publish

    def publish_after_the_extension(output: FolderOutput, *what: Any, **how: Any) -> str:
        monkeypatch.setattr(FolderOutput, "publish", publish)
        finalize_run(runs.ledger, extension, without_failed=False)
        return publish(output, *what, **how)

    monkeypatch.setattr(FolderOutput, "publish", publish_after_the_extension)
    inspect_and_repair(runs.ledger, base, hashes=False)

    assert run_ids(out) == (base, extension)
    assert len(Dataset(source, out).manifest.receipts) == 4
    assert verify(str(out), source=(str(source),)).faults == ()


def test_a_refilter_adds_to_its_earlier_output_what_its_source_has_got_since(
    runs: Runs, source: Path, grow: Callable[[int], None]
) -> None:
    out = runs.publish(source, where="score > 0.1")
    again = runs.refilter(out, where="score > 0.3", input_uris=(str(source),))
    first = data_digests(again)
    grow(3)
    extend(runs, source)
    whole = runs.publish(source, "whole", where="score > 0.3")

    again = runs.refilter(out, where="score > 0.3", input_uris=(str(source),), extends=True)

    assert {path: data_digests(again)[path] for path in first} == first
    assert data_digests(again) == data_digests(whole)
    assert verify(str(again), source=(str(source),)).faults == ()
    where = ("--where", "score > 0.3", "--input", str(source), "--output", str(again), "--extend")
    said = CliRunner().invoke(cli, ["refilter", str(out), *where, "--json"])
    assert (said.exit_code, json.loads(said.stdout)) == (
        0,
        {"run_id": run_ids(again)[-1], "output_uri": str(again), "shards": 4, "added": 0},
    )
    assert said.stderr.startswith("Nothing to add: the 4 shards at ")


def test_lines_of_further_files_have_the_types_of_the_dataset(runs: Runs, tmp_path: Path) -> None:
    source = tmp_path / "lines"
    source.mkdir()
    (source / "a.jsonl").write_text('{"text": "one", "n": 1}\n')
    out = runs.publish(source, keep_all=True)
    (source / "b.jsonl").write_text('{"text": "two", "n": null, "more": "x"}\n')

    runs.publish(source, extends=True, keep_all=True)

    rows = published_rows(out)
    assert rows["n"].to_pylist() == [1, None]
    assert "more" not in rows.column_names


def begin(runs: Runs, source: Path) -> str:
    """Score an extension that no finalizer has seen yet. Returns its id."""
    plan = plan_run(runs.options(source, extends=True, where="score > 0.1"))
    open_output(plan.spec.output_uri, plan.spec.run_id).reserve(plan.spec)
    runs.ledger.create_run(plan.spec, plan.shards, now=1.0)
    score(runs.ledger, runs.scorer, plan.spec, plan.shards, scratch=source.with_name("scratch"))
    return plan.spec.run_id


def inspect(runs: Runs, run_id: str) -> list[Finding]:
    spec = runs.ledger.spec(run_id)
    return open_output(spec.output_uri, run_id).inspect(Receipts(runs.ledger.receipts(run_id)), hashes=True)
