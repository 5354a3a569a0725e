"""The estimate of a dry run, against what real runs of the same plan then take."""

import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import Result
from typer.testing import CliRunner

from hubserver import HubServer
from shardsift.fleet.ledger import Ledger
from shardsift.producer.cli import cli
from shardsift.producer.local.demo_data import write_shards
from shardsift.producer.planning.estimate import Estimate, earlier_speeds, estimate_run, plan_report
from shardsift.producer.planning.options import RunOptions
from shardsift.producer.planning.plan import Plan, plan_run
from support.line_files import write_file
from support.nli import nli_classifier
from support.processes import run_command
from support.records import a_spec
from support.small_run import Runs

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture
def options(shards: Path, tiny_model: Path, tmp_path: Path) -> RunOptions:
    return RunOptions(
        input_uris=(str(shards),), models=(str(tiny_model),), output_uri=str(tmp_path / "out"), keep_all=True
    )


def estimated(plan: Plan, *, ledger: Ledger | None = None, rows: int | None = None) -> Estimate:
    counted = plan_report(plan)["rows"] if rows is None else rows
    assert isinstance(counted, int)
    return estimate_run(plan, counted_rows=counted, ledger=ledger)


def tokens_of_run(runs: Runs, plan: Plan) -> int:
    """Publish the whole run. The receipts say the tokens."""
    runs.publish_plan(plan)
    return sum(one.provenance.tokens for one in runs.ledger.receipts(plan.spec.run_id))


class TestBadRows:
    """A dry run says which rows of its sample cannot be read, and fails if the run would."""

    def dry_run(self, folder: Path, model: Path, lines: list[str], *options: str) -> Result:
        write_file(folder / "in/a.jsonl", "\n".join(lines).encode())
        given = ("run", "--input", str(folder / "in"), "--model", str(model), "--output", str(folder / "out"))
        return CliRunner().invoke(cli, [*given, "--keep-all", "--dry-run", *options])

    GOOD, CUT, ODD = '{"text": "a", "meta": {"n": 1}}', '{"text": "a', '{"text": "b", "meta": {"n": "N/A"}}'

    def test_too_many_bad_rows_fail_a_dry_run(self, tiny_model: Path, tmp_path: Path) -> None:
        done = self.dry_run(tmp_path, tiny_model, [self.GOOD] * 72 + [self.ODD] * 9)

        assert done.exit_code == 1
        assert "the run would fail: 9 rows of 81 cannot be read, and --max-bad-rows 0.01 allows 8" in done.stdout
        assert "--columns text,meta:json" in done.stdout
        assert 'shard a, line 73: meta.n is "N/A", not int64; shard a, line 74: ' in done.stdout

    def test_bad_rows_alone_fail_a_dry_run_and_give_no_tokens(self, tiny_model: Path, tmp_path: Path) -> None:
        done = self.dry_run(tmp_path, tiny_model, ["<html>"] * 3, "--columns", "text:string", "--json")

        assert done.exit_code == 1
        estimate = json.loads(done.stdout)["estimate"]
        assert estimate["bad_rows"] == {"not valid JSON": 3}
        assert estimate["tokens"] is None
        assert "3 rows of 3 cannot be read" in estimate["refused"]


class TestAgainstARun:
    def test_a_small_input_is_counted_exactly(self, options: RunOptions, runs: Runs) -> None:
        plan = plan_run(options)

        estimate = estimated(plan)

        assert (estimate.rows, estimate.rows_are_counted) == (96, True)
        assert (estimate.sampled_rows, estimate.sampled_shards) == (96, 8)
        assert estimate.tokens == tokens_of_run(runs, plan)

    def test_a_sample_is_about_right(self, options: RunOptions, tmp_path: Path) -> None:
        for seed, name in enumerate(("one", "two")):
            write_shards(tmp_path / "in" / name, shards=6, rows=150, seed=seed)

        sampled, first, second = (
            estimated(plan_run(replace(options, input_uris=(f"{tmp_path}/{folder}",))))
            for folder in ("in", "in/one", "in/two")
        )

        assert (sampled.rows, sampled.sampled_rows, sampled.sampled_shards) == (1_800, 1_000, 8)
        assert first.sampled_rows == second.sampled_rows == 900
        assert first.tokens is not None
        assert second.tokens is not None
        assert sampled.tokens == pytest.approx(first.tokens + second.tokens, rel=0.15)

    def test_several_models_and_labels_add_up_for_texts_that_are_read_as_the_run_says(
        self, options: RunOptions, runs: Runs, tiny_model: Path, tmp_path: Path
    ) -> None:
        nli = nli_classifier(tmp_path / "nli", "BERT")
        models = (f"edu={options.models[0]}", f"topic={nli}")
        texts = {"text_column": "{id}: {text}", "limit_rows": 30, "max_tokens": 64, "passages": "head+tail"}
        plan = plan_run(replace(options, models=models, labels=("climate change", "sport"), **texts))

        estimate = estimated(plan)

        assert estimate.tokens == pytest.approx(tokens_of_run(runs.by(edu=tiny_model, topic=nli), plan), rel=0.15)

    def test_an_earlier_run_of_the_model_says_how_fast_its_device_is(
        self, options: RunOptions, runs: Runs, ledger: Ledger, tmp_path: Path
    ) -> None:
        done = plan_run(options)
        tokens = tokens_of_run(runs, done)
        run_id, speeds = earlier_speeds(done.spec, ledger)
        again = plan_run(replace(options, min_score=4, keep_all=False, output_uri=str(tmp_path / "other")))

        estimate = estimated(again, ledger=ledger)
        (cpu,) = (device for device in estimate.devices if device.device == "cpu")

        receipts = [one.provenance for one in ledger.receipts(done.spec.run_id)]
        worked = sum(sum(one.seconds.values()) for one in receipts)
        assert (run_id, speeds) == (done.spec.run_id, {"cpu": pytest.approx(tokens / worked)})
        assert cpu.basis == f"as run {done.spec.run_id} did"
        assert cpu.gpu_hours.low * 3600 < worked < cpu.gpu_hours.high * 3600
        assert cpu.cost is None
        assert earlier_speeds(a_spec(), ledger) == ("", {})  # of another model


class TestWhatIsMissing:
    def test_shards_that_cannot_be_read_leave_the_counted_rows(self, options: RunOptions, tmp_path: Path) -> None:
        write_shards(tmp_path / "in", shards=2, rows=5, seed=1)
        pq.write_table(pa.table({"content": ["a"]}), tmp_path / "in/zzz.parquet")
        plan = plan_run(replace(options, input_uris=(str(tmp_path / "in"),)))

        of_other_columns = estimated(plan)
        shutil.rmtree(tmp_path / "in")
        gone = estimated(plan, rows=11)

        assert of_other_columns.notes == ('tokens are unknown: Shard zzz has no column "text"; it has: content',)
        assert (gone.rows, gone.tokens) == (of_other_columns.rows, None) == (11, None)
        assert "the file does not exist" in gone.notes[0] or "No such file" in gone.notes[0]


@pytest.fixture(scope="module")
def hub(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubServer]:
    folder = tmp_path_factory.mktemp("dataset")
    write_shards(folder / "data/CC-MAIN-2024-10", shards=20, rows=30, seed=6)
    with HubServer() as hub:
        hub.create_repo("HuggingFaceFW/fineweb")
        hub.add_folder("HuggingFaceFW/fineweb", folder)
        model = tmp_path_factory.mktemp("model")
        for file in ("config", "tokenizer", "tokenizer_config"):
            shutil.copy(tiny_model / f"{file}.json", model)
        hub.create_repo("org/tiny", repo_type="model")
        hub.add_folder("org/tiny", model, repo_type="model")
        yield hub
    assert hub.handler_errors == []


def test_a_crawl_is_estimated_from_a_few_files_and_a_model_without_weights(hub: HubServer, tmp_path: Path) -> None:
    done = run_command(
        *("producer", "enqueue", "--crawl", "CC-MAIN-2024-10", "--model", "org/tiny", "--dry-run", "--keep-all"),
        *("--output", tmp_path / "out", "--json"),
        environment=hub.client_env(tmp_path / "home"),
    )
    assert done.returncode == 0, done.stderr
    plan = json.loads(done.stdout)
    estimate = plan["estimate"]
    opened = {Path(one.path).name for one in hub.requests if one.method == "GET" and ".parquet" in one.path}

    assert plan["rows"] == "not counted: it would take reading 20 footers over the network"
    assert (estimate["sampled_rows"], estimate["sampled_shards"]) == (4 * 30, 4)
    assert estimate["rows"] == pytest.approx(600, rel=0.5)  # the commit, which chooses the files, differs each time
    assert estimate["tokens"] > 100 * estimate["rows"]
    assert estimate["notes"] == []
    assert 0 < len(opened) <= 1 + 4  # the first shard, whose schema is looked at, and the sample
