"""Enqueueing fails with one clear line and no effect."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from celery import Celery

from fleet.errors import UsageError
from fleet.ledger import Ledger
from fleet.process.broker import queue_length
from fleet.storage.opening import open_output
from producer.planning.enqueue import check_output
from producer.planning.options import RunOptions
from producer.planning.plan import plan_run
from producer.publishing.publish import finalize_run
from producer.status import run_status
from producer.status.advice import what_next
from support.enqueued_runs import do, write
from support.ledger_states import claimed
from support.processes import call_command
from support.records import a_manifest, a_shard, stage_shard


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
            ({"where": "score >="}, "syntax error"),
            ({"where": "nope > 3"}, 'there is no column "nope"; there are: text, id, length, shard, row, score'),
            ({"where": "score > 3; select 1"}, "cannot be used"),
            ({"min_score": float("nan")}, "cannot be used"),
            ({"min_score": 3.0, "where": "score > 3"}, "Use only one of"),
            ({"keep_all": True, "min_score": 3.0}, "Use only one of"),
            ({"where": " "}, "--where is empty: is a shell variable unset"),
            ({"row_columns": "row"}, "--row-columns takes two names, like shard,row, or none; it was 'row'"),
            ({"row_columns": "row,row"}, "--row-columns takes two names"),
            ({"row_columns": "s,length"}, 'already is a column "length".*--row-columns none'),
            ({"row_columns": "score,r"}, 'already is a column "score".*--row-columns'),
            ({"function_to_apply": "softmax", "keep_all": True}, "Softmax makes every score .* one output 1"),
            ({"function_to_apply": "sigmoid"}, "Say which rows to keep: --min-score"),
            ({"output_uri": ""}, "Say where to put the rows: --output"),
            ({"crawl": "CC-MAIN-2024-10"}, "either --crawl .* or --input"),
            ({"input_uris": ()}, "either --crawl .* or --input"),
        ],
        ids=str,
    )
    def test_a_wrong_option_is_an_error(self, options: RunOptions, changes: dict[str, Any], says: str) -> None:
        refused(replace(options, **changes), says)

    def test_a_folder_that_is_not_there_or_not_a_model_is_an_error(self, options: RunOptions, source: Path) -> None:
        refused(replace(options, models=("./absent",)), r"There is no model folder \./absent\.")
        refused(replace(options, models=(str(source),)), "has no config.json, so it is not a model")

    @pytest.mark.parametrize(
        ("config", "says"),
        [
            (json.dumps({"architectures": ["GPT2LMHeadModel"]}), "is not a sequence classifier: .*GPT2LMHeadModel"),
            (json.dumps({"architectures": "BertModel"}), "its config.json says BertModel"),
            ("{ not json", "config.json .*cannot be read"),
            ("[]", "config.json .*cannot be read: it is not a JSON object"),
        ],
    )
    def test_a_model_that_is_not_a_classifier_is_an_error(
        self, options: RunOptions, tmp_path: Path, config: str, says: str
    ) -> None:
        model = tmp_path / "model"
        model.mkdir()
        (model / "config.json").write_text(config)

        refused(replace(options, models=(str(model),)), says)

    @pytest.mark.parametrize("limits", [{}, {"limit_rows": 5}])
    @pytest.mark.parametrize("content", [b"", b"PAR1" + b"\0" * 100 + b"PAR1"])
    def test_a_broken_first_shard_is_an_error(
        self, options: RunOptions, source: Path, content: bytes, limits: dict[str, int]
    ) -> None:
        (source / "a.parquet").write_bytes(content)

        refused(replace(options, **limits), "a.parquet: .*(not a readable Parquet file|may be damaged)")

    def test_an_input_without_shards_is_an_error(self, options: RunOptions, tmp_path: Path) -> None:
        (tmp_path / "empty").mkdir()

        refused(replace(options, input_uris=(str(tmp_path / "empty"),)), "No input files at")

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


class TestOutputsThatAreRefused:
    """Errors that only enqueueing finds leave no run behind."""

    def test_an_output_of_another_run(self, options: RunOptions, ledger: Ledger, app: Celery) -> None:
        first = do(options, ledger, app)
        ledger.renew(claimed(ledger, first.run_id), rows=5)

        with pytest.raises(
            UsageError, match=rf"holds the data of another run, {first.run_id}\. It differs in: the filter\."
        ):
            do(replace(options, min_score=1.0), ledger, app)

        assert ledger.run_ids() == [first.run_id]
        assert not ledger.is_cancelled(first.run_id)
        assert queue_length(ledger.redis, first.queue) == 3

    def test_an_output_of_another_run_that_is_published_or_of_which_the_ledger_knows_nothing(
        self,
        options: RunOptions,
        ledger: Ledger,
        app: Celery,
        out: Path,
    ) -> None:
        first = do(options, ledger, app)
        plan = plan_run(options)
        ledger.redis.flushall()
        other, differs = replace(options, row_columns="s,r"), "It differs in: row columns"

        with pytest.raises(UsageError, match=differs):
            do(other, ledger, app)
        (out / ".shardsift" / first.run_id / "spec.json").unlink()
        (out / "manifest.parquet").write_bytes(a_manifest(first.run_id, [], spec=plan.spec))
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


class TestARunThatHasScoredNothing:
    """Another run of the same output takes its place, as when its --dtype was found to be too coarse."""

    def test_it_gives_way_and_is_cancelled(self, options: RunOptions, ledger: Ledger, app: Celery, out: Path) -> None:
        first = do(options, ledger, app)

        second = do(replace(options, dtype="float32"), ledger, app)

        assert (first.instead_of, second.instead_of) == (None, first.run_id)
        assert ledger.is_cancelled(first.run_id)
        assert what_next(run_status(ledger, first.run_id)) == [
            f"Run {second.run_id} of the same output has taken its place. To do both, enqueue this one with another --output."
        ]
        with pytest.raises(UsageError, match=f"Run {second.run_id} of the same output has taken its place"):
            ledger.pause(first.run_id)
        assert [path.name for path in (out / ".shardsift").iterdir()] == [second.run_id]
        assert ledger.counts(second.run_id).queued == 3

    def test_one_that_failed_before_its_first_row_gives_way_too(
        self, options: RunOptions, ledger: Ledger, app: Celery
    ) -> None:
        first = do(options, ledger, app)
        for name in "abc":
            ledger.fail(claimed(ledger, first.run_id, a_shard(name)), "The scores are not finite.", "")

        assert do(replace(options, dtype="float32"), ledger, app).instead_of == first.run_id
        assert not [line for line in what_next(run_status(ledger, first.run_id)) if "producer retry" in line]

    @pytest.mark.parametrize("is_published", [False, True])
    def test_one_whose_shards_are_done_does_not_though_redis_has_lost_them(
        self, is_published: bool, options: RunOptions, ledger: Ledger, app: Celery, out: Path, tmp_path: Path
    ) -> None:
        first = do(options, ledger, app)
        spec = ledger.spec(first.run_id)
        for name in "abc" if is_published else "a":
            shard = a_shard(name)
            receipt = stage_shard(open_output(str(out), first.run_id), first.run_id, shard, tmp_path)
            ledger.complete(claimed(ledger, first.run_id, shard), receipt)
        if is_published:
            finalize_run(ledger, first.run_id, without_failed=False)
        before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
        ledger.redis.flushall()
        ledger.add_shards(spec, [a_shard(name) for name in "abc"], now=0)  # then the producer died

        with pytest.raises(UsageError, match=f"holds the data of another run, {first.run_id}"):
            do(replace(options, dtype="float32"), ledger, app)

        assert {path: path.read_bytes() for path in out.rglob("*") if path.is_file()} == before
        assert not ledger.is_cancelled(first.run_id)

    def test_its_retry_is_refused_while_the_output_is_anothers(
        self, options: RunOptions, ledger: Ledger, app: Celery, redis_url: str
    ) -> None:
        first = do(options, ledger, app)
        second = do(replace(options, dtype="float32"), ledger, app)

        done = call_command("producer", "retry", first.run_id, environment={"REDIS_URL": redis_url})

        assert (done.returncode, ledger.is_cancelled(first.run_id)) == (2, True)
        assert f"holds the data of another run, {second.run_id}" in done.stderr

    def test_the_first_command_takes_the_output_back(self, options: RunOptions, ledger: Ledger, app: Celery) -> None:
        first = do(options, ledger, app)
        second = do(replace(options, dtype="float32"), ledger, app)

        again = do(options, ledger, app)

        assert (again.run_id, again.instead_of) == (first.run_id, second.run_id)
        assert not ledger.is_cancelled(first.run_id)


def test_a_dry_run_refuses_what_the_run_refuses_and_cancels_nothing(
    options: RunOptions, ledger: Ledger, app: Celery
) -> None:
    first = do(options, ledger, app)
    other = plan_run(replace(options, dtype="float32"))

    check_output(plan_run(options), ledger)
    check_output(other, ledger)  # the first has scored nothing
    ledger.renew(claimed(ledger, first.run_id), rows=5)
    check_output(plan_run(options), ledger)
    for known in (ledger, None):
        with pytest.raises(UsageError, match=f"holds the data of another run, {first.run_id}"):
            check_output(other, known)
    assert not ledger.is_cancelled(first.run_id)
