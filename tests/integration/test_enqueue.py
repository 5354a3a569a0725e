"""Enqueueing creates one run with one task per shard, or fails with one clear line and no effect."""

import hashlib
import json
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from celery import Celery

from fleet.disclosure import disclosed_spec
from fleet.errors import ShardError, UsageError
from fleet.ledger import Claim, Ledger
from fleet.queues import queue_length
from fleet.receipt import Receipt
from fleet.shard import Shard
from fleet.storage.manifest import manifest
from fleet.storage.opening import open_output
from fleet.storage.output import Mark
from producer.enqueue import Enqueued, enqueue
from producer.finalizer.publish import NotReady, finalize_run
from producer.options import RunOptions
from producer.plan import Plan, plan_run
from producer.plan_report import plan_report
from producer.retry import retry_run
from support.records import a_receipt, an_output_file


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Three shards of ten rows."""
    folder = tmp_path / "input"
    folder.mkdir()
    for name in "abc":
        write(folder / f"{name}.parquet")
    return folder


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out"


@pytest.fixture
def options(source: Path, out: Path, tiny_model: Path) -> RunOptions:
    return RunOptions(input_uris=(str(source),), model=str(tiny_model), output_uri=str(out))


def write(path: Path, **columns: Any) -> None:
    text = [f"text {row}" for row in range(10)]
    pq.write_table(pa.table({"text": text, "id": text, "length": list(range(10)), **columns}), path)


def do(options: RunOptions, ledger: Ledger, app: Celery) -> Enqueued:
    return enqueue(plan_run(options), ledger, app, resend_seconds=60)


class TestEnqueueing:
    def test_each_shard_becomes_a_task_in_the_scorers_queue(
        self, options: RunOptions, ledger: Ledger, app: Celery, out: Path
    ) -> None:
        done = do(options, ledger, app)

        assert (done.added, done.sent, done.counts.shards, done.counts.queued) == (3, 3, 3, 3)
        assert ledger.run_ids() == [done.run_id]
        assert queue_length(ledger.redis, done.queue) == 3
        assert (out / ".shardsift" / done.run_id / "spec.json").read_bytes() == disclosed_spec(
            ledger.spec(done.run_id)
        ).to_json()

    def test_what_lies_beside_the_output_names_no_folder_of_this_machine(
        self, options: RunOptions, ledger: Ledger, app: Celery, out: Path
    ) -> None:
        told = do(options, ledger, app)
        asked = do(replace(options, output_uri=f"{out}-2", publish_paths=True), ledger, app)

        spec, full = (
            Path(place, ".shardsift", done.run_id, "spec.json").read_text()
            for place, done in ((out, told), (f"{out}-2", asked))
        )
        assert str(out.parent) not in spec
        assert str(out.parent) in full

    @pytest.mark.parametrize(
        ("field", "uri"),
        [
            ("input_uris", ("ftp://me:s3cret@host/shards/*.parquet",)),
            ("input_uris", ("https://bucket.s3.amazonaws.com/a.parquet?X-Amz-Expires=60&X-Amz-Signature=s3cret",)),
            ("output_uri", "s3://KEY:s3cret@bucket/out"),
            ("output_uri", "https://a.blob.core.windows.net/out?sig=s3cret"),
        ],
    )
    def test_an_address_that_holds_a_secret_is_refused_without_repeating_it(
        self, options: RunOptions, field: str, uri: str
    ) -> None:
        with pytest.raises(UsageError, match="carries a password, token or signature.*in the environment") as refused:
            plan_run(replace(options, **{field: uri}))

        assert "s3cret" not in str(refused.value)

    def test_enqueueing_twice_adds_nothing(self, options: RunOptions, ledger: Ledger, app: Celery) -> None:
        first = do(options, ledger, app)

        second = do(options, ledger, app)

        assert second.run_id == first.run_id
        assert (second.added, second.sent, second.counts.shards) == (0, 0, 3)
        assert queue_length(ledger.redis, first.queue) == 3

    def test_planning_touches_nothing(self, options: RunOptions, ledger: Ledger, out: Path) -> None:
        report = plan_report(plan_run(options))

        assert (report["shards"], report["rows"], report["tasks"]) == (3, 30, 3)
        assert ledger.run_ids() == []
        assert not out.exists()

    def test_new_shards_are_another_run(
        self, options: RunOptions, ledger: Ledger, app: Celery, source: Path, out: Path
    ) -> None:
        first = do(options, ledger, app)
        write(source / "d.parquet")

        with pytest.raises(UsageError, match=f"holds the data of another run, {first.run_id}"):
            do(options, ledger, app)
        second = do(replace(options, output_uri=f"{out}-2"), ledger, app)

        assert second.run_id != first.run_id
        assert (second.added, second.counts.shards) == (4, 4)
        assert ledger.counts(first.run_id).shards == 3

    def test_a_relative_output_does_not_depend_on_the_workers_folder(
        self, options: RunOptions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)

        assert plan_run(replace(options, output_uri="out")).spec == plan_run(options).spec

    @pytest.mark.parametrize(
        ("changes", "where"),
        [
            ({}, '"score" >= 3.0'),
            ({"min_score": 2.5}, '"score" >= 2.5'),
            ({"min_score": 0}, '"score" >= 0'),
            ({"score_column": "edu", "min_score": 1}, '"edu" >= 1'),
            ({"score_column": 'e"du', "min_score": 1}, '"e""du" >= 1'),
            ({"where": "length > 3"}, "length > 3"),
            ({"keep_all": True}, None),
        ],
    )
    def test_the_filter_is_what_the_user_said(
        self, options: RunOptions, changes: dict[str, Any], where: str | None
    ) -> None:
        assert plan_run(replace(options, **changes)).spec.where == where

    @pytest.mark.parametrize(
        ("limits", "shards"),
        [({"limit_shards": 2}, [("a", None), ("b", None)]), ({"limit_rows": 15}, [("a", None), ("b", 5)])],
    )
    def test_limits_make_a_run_of_their_own(
        self, options: RunOptions, limits: dict[str, int], shards: list[tuple[str, int | None]]
    ) -> None:
        plan = plan_run(replace(options, **limits))

        assert [(shard.name, shard.row_limit) for shard in plan.shards] == shards
        assert plan.spec.run_id != plan_run(options).spec.run_id

    def test_a_retrained_model_in_the_same_folder_is_another_run(
        self, options: RunOptions, tiny_model: Path, tmp_path: Path
    ) -> None:
        model = copied_model(tiny_model, tmp_path)
        before = plan_run(replace(options, model=str(model))).spec
        (model / "model.safetensors").write_bytes(b"other weights")

        after = plan_run(replace(options, model=str(model))).spec

        assert after.run_id != before.run_id
        assert after.queue != before.queue


class TestChangedInput:
    """The same command, after input files have changed."""

    def test_a_file_that_was_touched_changes_nothing(
        self, options: RunOptions, ledger: Ledger, app: Celery, source: Path
    ) -> None:
        first = do(options, ledger, app)
        os.utime(source / "a.parquet", (1, 1))

        again = do(options, ledger, app)

        assert (again.run_id, again.added) == (first.run_id, 0)

    def test_files_that_changed_are_named(self, options: RunOptions, ledger: Ledger, app: Celery, source: Path) -> None:
        first = do(options, ledger, app)
        write(source / "a.parquet", id=["other"] * 10)
        (source / "c.parquet").rename(source / "d.parquet")

        with pytest.raises(UsageError) as refusal:
            do(options, ledger, app)

        assert "holds the data of another run" in str(refusal.value)
        assert "input files were changed: a; added: d; removed: c." in str(refusal.value)
        assert str(refusal.value).endswith(f"producer retry {first.run_id}")
        assert ledger.run_ids() == [first.run_id]

    def test_the_same_command_continues_a_run_whose_replaced_files_were_retried(
        self, options: RunOptions, ledger: Ledger, app: Celery, source: Path
    ) -> None:
        first = do(options, ledger, app)
        claim = ledger.claim(first.run_id, "b", owner="w1")
        assert isinstance(claim, Claim)
        write(source / "b.parquet", id=["mended"] * 10)
        ledger.fail(claim, "the input changed", "")
        retry_run(ledger, first.run_id)

        again = do(options, ledger, app)

        assert (again.run_id, again.added, again.counts.queued) == (first.run_id, 0, 3)

    def test_a_file_of_a_shard_that_is_done_is_not_taken_as_it_is_now(
        self, options: RunOptions, ledger: Ledger, app: Celery, source: Path, tmp_path: Path
    ) -> None:
        plan = plan_run(options)
        do(options, ledger, app)
        ledger.restore(plan.spec.run_id, [stage(plan, plan.shards[0], tmp_path)])
        write(source / "a.parquet", id=["other"] * 10)
        retry_run(ledger, plan.spec.run_id)

        with pytest.raises(UsageError, match="input files were changed: a"):
            do(options, ledger, app)


class TestTakingOver:
    """After a loss of Redis, finished shards are found by the receipts that are stored with the output."""

    def test_shards_whose_output_is_there_are_not_scored_again(
        self, options: RunOptions, ledger: Ledger, app: Celery, tmp_path: Path
    ) -> None:
        plan = plan_run(options)
        do(options, ledger, app)
        receipts = [stage(plan, shard, tmp_path) for shard in plan.shards[:2]]
        ledger.redis.flushall()

        again = do(options, ledger, app)

        assert (again.added, again.restored, again.sent) == (3, 2, 1)
        assert (again.counts.done, again.counts.queued, again.counts.rows_in) == (2, 1, 20)
        assert list(ledger.receipts(again.run_id)) == receipts
        assert finalize_run(ledger, again.run_id, without_failed=False) == NotReady(reason="1 shard not done yet")

    def test_a_run_that_was_published_is_not_published_again(
        self, options: RunOptions, ledger: Ledger, app: Celery, tmp_path: Path, out: Path
    ) -> None:
        plan = plan_run(options)
        do(options, ledger, app)
        ledger.restore(plan.spec.run_id, [stage(plan, shard, tmp_path) for shard in plan.shards])
        first = finalize_run(ledger, plan.spec.run_id, without_failed=False)
        (out / "README.md").write_text("mine")
        before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
        ledger.redis.flushall()

        again = do(options, ledger, app)

        assert (again.restored, again.sent, again.counts.done) == (3, 0, 3)
        assert finalize_run(ledger, again.run_id, without_failed=False) == first
        assert {path: path.read_bytes() for path in out.rglob("*") if path.is_file()} == before

    def test_after_a_producer_died_while_writing_the_run_the_next_one_finds_finished_shards(
        self, options: RunOptions, ledger: Ledger, app: Celery, tmp_path: Path
    ) -> None:
        plan = plan_run(options)
        do(options, ledger, app)
        stage(plan, plan.shards[0], tmp_path)
        ledger.redis.hdel(f"shardsift:run:{plan.spec.run_id}", "complete")

        assert do(options, ledger, app).restored == 1

    def test_shards_that_the_user_wants_scored_again_are_not_taken_over(
        self, options: RunOptions, ledger: Ledger, app: Celery, tmp_path: Path
    ) -> None:
        plan = plan_run(options)
        do(options, ledger, app)
        ledger.restore(plan.spec.run_id, [stage(plan, plan.shards[0], tmp_path)])
        ledger.retry(plan.spec.run_id, done_too=True)

        again = do(options, ledger, app)

        assert (again.restored, again.counts.done) == (0, 0)

    def test_receipts_that_cannot_be_read_leave_no_run_behind(
        self, options: RunOptions, ledger: Ledger, app: Celery, tmp_path: Path, out: Path
    ) -> None:
        do(options, ledger, app)
        ledger.redis.flushall()
        (out / "manifest.parquet").mkdir()

        with pytest.raises(ShardError, match=r"manifest.parquet|receipts"):
            do(options, ledger, app)

        assert ledger.redis.keys() == []


def stage(plan: Plan, shard: Shard, folder: Path) -> Receipt:
    """Stage a shard and store its receipt, as a worker does before it records the shard in the ledger."""
    output = open_output(plan.spec.output_uri, plan.spec.run_id)
    (folder / "scratch").write_bytes(shard.name.encode())
    data, scores = (
        an_output_file(
            path,
            staged_path=output.stage(folder / "scratch", path, attempt="1-aa"),
            size_bytes=len(shard.name),
            sha256=hashlib.sha256(shard.name.encode()).hexdigest(),
        )
        for path in (shard.data_path, shard.scores_path)
    )
    receipt = a_receipt(plan.spec.run_id, shard, data=data, scores=scores)
    output.store_receipt(receipt)
    return receipt


class TestRefusals:
    """Each error is one line that names the mistake. Neither the ledger nor the output changes."""

    @pytest.fixture(autouse=True)
    def _nothing_is_touched(self, ledger: Ledger, out: Path) -> Iterator[None]:
        yield
        assert ledger.redis.keys() == []
        assert not out.exists()

    @pytest.mark.parametrize(
        ("changes", "says"),
        [
            (
                {"text_column": "content"},
                r'has no column "content"; it has: text, id, length\. Name one with --text-column',
            ),
            ({"text_column": "length"}, r'"length" holds int64, not text\. Name a string column'),
            ({"score_column": "length"}, r'already has a column "length".*--score-column'),
            ({"score_column": "id", "keep_all": True}, r'already has a column "id".*--score-column'),
            ({"score_column": "row", "keep_all": True}, r'"row".*--score-column'),
            ({"score_column": "error", "keep_all": True}, r'"error".*--score-column'),
            ({"where": "score >="}, "syntax error"),
            ({"where": "nope > 3"}, 'there is no column "nope"; there are: text, id, length, shard, row, score'),
            ({"where": "score > 3; select 1"}, "cannot be used"),
            ({"min_score": float("nan")}, "cannot be used"),
            ({"min_score": 3.0, "where": "score > 3"}, "Use only one of"),
            ({"keep_all": True, "where": "score > 3"}, "Use only one of"),
            ({"keep_all": True, "min_score": 3.0}, "Use only one of"),
            ({"where": ""}, "--where is empty: is a shell variable unset"),
            ({"where": " "}, "--where is empty"),
            ({"row_columns": "row"}, "--row-columns takes two names, like shard,row; it was 'row'"),
            ({"row_columns": "row,row"}, "--row-columns takes two names"),
            ({"row_columns": "s,length"}, 'already is a column "length".*--no-row-columns'),
            ({"row_columns": "score,r"}, 'already is a column "score".*--row-columns'),
            ({"score_column": "shard", "keep_all": True}, r'"shard".*--score-column'),
            ({"function_to_apply": "softmax", "keep_all": True}, "Softmax makes every score .* one output 1"),
            ({"function_to_apply": "sigmoid"}, "Say which scores to keep: --min-score"),
            ({"function_to_apply": "sigmoid", "min_score": 0.5, "int_score": True}, "--int-score rounds a raw score"),
            ({"output_uri": ""}, "Say where to put the rows: --output"),
            ({"crawl": "CC-MAIN-2024-10"}, "either --crawl .* or --input"),
            ({"input_uris": ()}, "either --crawl .* or --input"),
            ({"model_revision": "v2"}, "A folder has no revisions: leave out --revision"),
        ],
        ids=str,
    )
    def test_a_wrong_option_is_an_error(self, options: RunOptions, changes: dict[str, Any], says: str) -> None:
        refused(replace(options, **changes), says)

    def test_a_model_that_does_not_exist_is_an_error(self, options: RunOptions, tmp_path: Path) -> None:
        refused(replace(options, model=str(tmp_path / "absent")), "There is no model '.*absent': neither a folder here")

    def test_a_folder_that_is_not_a_model_is_an_error(self, options: RunOptions, source: Path) -> None:
        refused(replace(options, model=str(source)), "has no config.json, so it is not a model")

    @pytest.mark.parametrize(
        ("config", "says"),
        [
            (json.dumps({"architectures": ["GPT2LMHeadModel"]}), "is not a sequence classifier: .*GPT2LMHeadModel"),
            ("{ not json", "config.json .*cannot be read"),
            ("[1]", "config.json .*cannot be read"),
            ("", "config.json .*cannot be read"),
        ],
    )
    def test_a_model_that_is_not_a_classifier_is_an_error(
        self, options: RunOptions, tmp_path: Path, config: str, says: str
    ) -> None:
        model = tmp_path / "model"
        model.mkdir()
        (model / "config.json").write_text(config)

        refused(replace(options, model=str(model)), says)

    def test_rounding_the_scores_of_a_model_with_many_outputs_is_an_error(
        self, options: RunOptions, tiny_model: Path, tmp_path: Path
    ) -> None:
        model = copied_model(tiny_model, tmp_path, id2label={"0": "good", "1": "bad"})

        refused(replace(options, model=str(model), int_score=True), "the model has 2 outputs")

    @pytest.mark.parametrize("limits", [{}, {"limit_rows": 5}, {"limit_shards": 1}])
    @pytest.mark.parametrize("content", [b"", b"PAR1", b"PAR1" + b"\0" * 100 + b"PAR1", b"<html>"])
    def test_a_broken_first_shard_is_an_error(
        self, options: RunOptions, source: Path, content: bytes, limits: dict[str, int]
    ) -> None:
        (source / "a.parquet").write_bytes(content)

        refused(replace(options, **limits), "a.parquet.*not a readable Parquet file")

    def test_an_input_without_shards_is_an_error(self, options: RunOptions, tmp_path: Path) -> None:
        (tmp_path / "empty").mkdir()

        refused(replace(options, input_uris=(str(tmp_path / "empty"),)), "No Parquet files at")

    def test_an_output_in_the_input_folder_is_found_through_links(
        self, options: RunOptions, source: Path, tmp_path: Path
    ) -> None:
        linked_input, linked_output = tmp_path / "in-link", tmp_path / "out-link"
        linked_input.symlink_to(source)
        (source / "below").mkdir()
        linked_output.symlink_to(source / "below")

        says = rf"The output {source}/(below/)?out lies in the input folder"
        refused(replace(options, output_uri=f"{linked_input}/out"), says)
        refused(replace(options, output_uri=f"{linked_output}/out"), says)
        refused(replace(options, input_uris=(f"{linked_input}",), output_uri=f"{source}/out"), says)
        refused(replace(options, input_uris=(f"file://{source}",), output_uri=f"file://{source}/out"), says)
        refused(replace(options, input_uris=(f"{linked_input}/**/*.parquet",), output_uri=f"{source}/out"), says)
        assert plan_run(replace(options, input_uris=(f"{source}/*.parquet",), output_uri=f"{source}/out")).shards

    def test_an_input_with_two_columns_of_one_name_is_an_error(self, options: RunOptions, source: Path) -> None:
        twice = pa.table([["a"], ["b"], ["c"]], names=["text", "id", "id"])
        pq.write_table(twice, source / "a.parquet")

        refused(options, 'Shard a has several columns "id"')

    @pytest.mark.parametrize(
        ("content", "looks_like"),
        [
            (b"text,url\nhello,https://example.org\n", "text, perhaps CSV"),
            (b'{"text": "hello"}\n', "JSON"),
            (b"\x1f\x8b\x08" + bytes(50), "gzip"),
            (b"PAR1" + bytes(50), "truncated"),
        ],
    )
    def test_a_file_that_is_not_parquet_is_an_error_that_names_its_likely_format(
        self, options: RunOptions, tmp_path: Path, content: bytes, looks_like: str
    ) -> None:
        file = tmp_path / "data.csv"
        file.write_bytes(content)

        refused(replace(options, input_uris=(str(file),)), f"data.csv: not a readable Parquet file.*{looks_like}")

    def test_a_score_column_that_differs_from_another_only_in_case_is_an_error(
        self, options: RunOptions, source: Path
    ) -> None:
        for name in "abc":
            write(source / f"{name}.parquet", Score=["x"] * 10)

        refused(options, '"score" names several columns')


def refused(options: RunOptions, says: str) -> None:
    with pytest.raises(UsageError, match=says) as error:
        plan_run(options)
    assert "\n" not in str(error.value)


def copied_model(model: Path, folder: Path, **config: Any) -> Path:
    """A copy of a model folder, with changes to its config."""
    copy = folder / "model"
    copy.mkdir()
    for file in model.iterdir():
        (copy / file.name).write_bytes(file.read_bytes())
    known = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps(known | config))
    return copy


class TestOutputsThatAreRefused:
    """Errors that only enqueueing finds leave no run behind."""

    def test_an_output_of_another_run(self, options: RunOptions, ledger: Ledger, app: Celery) -> None:
        first = do(options, ledger, app)

        differs = r'--min-score or --where: "score" >= 3.0 there, "score" >= 1.0 here'
        with pytest.raises(
            UsageError, match=rf"holds the data of another run, {first.run_id}\. The difference is {differs}"
        ):
            do(replace(options, min_score=1.0), ledger, app)

        assert ledger.run_ids() == [first.run_id]
        assert queue_length(ledger.redis, first.queue) == 3

    @pytest.mark.parametrize(
        ("changes", "differs"),
        [
            ({"score_blank": True}, "--score-blank: no there, yes here"),
            ({"publish_paths": True}, "--publish-paths: no there, yes here"),
            (
                {"row_columns": "s,r", "limit_rows": 9},
                "--row-columns: shard, row there, s, r here; --limit-rows: none there, 9",
            ),
        ],
    )
    def test_an_output_of_another_run_that_is_published_or_of_which_the_ledger_knows_nothing(
        self,
        options: RunOptions,
        ledger: Ledger,
        app: Celery,
        out: Path,
        changes: dict[str, Any],
        differs: str,
    ) -> None:
        first = do(options, ledger, app)
        plan = plan_run(options)
        ledger.redis.flushall()
        other = replace(options, **changes)

        with pytest.raises(UsageError, match=differs):
            do(other, ledger, app)
        (out / ".shardsift" / first.run_id / "spec.json").unlink()
        mark = Mark.of(first.run_id, [])
        (out / "manifest.parquet").write_bytes(manifest(plan.spec, [], mark))
        with pytest.raises(UsageError, match=differs):
            do(other, ledger, app)

    @pytest.mark.parametrize("place", ["file/out", "data"])
    def test_an_output_that_cannot_be_ours(
        self, options: RunOptions, ledger: Ledger, app: Celery, tmp_path: Path, place: str
    ) -> None:
        (tmp_path / "file").write_text("mine")
        (tmp_path / "data/data").mkdir(parents=True)

        with pytest.raises(UsageError, match="--output"):
            do(replace(options, output_uri=str(tmp_path / place)), ledger, app)

        assert ledger.redis.keys() == []
        assert (tmp_path / "file").read_text() == "mine"
        assert list((tmp_path / "data").iterdir()) == [tmp_path / "data/data"]

    @pytest.mark.parametrize("uri", ["nosuch://bucket/out", "hf://datasets/only-a-name", "hf://datasets/a/b/c"])
    def test_an_output_that_is_not_a_valid_address(
        self, options: RunOptions, ledger: Ledger, app: Celery, uri: str
    ) -> None:
        with pytest.raises(UsageError, match=uri):
            do(replace(options, output_uri=uri), ledger, app)

        assert ledger.redis.keys() == []
