"""Enqueueing fails with one clear line and no effect."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from shardsift.fleet.errors import UsageError
from shardsift.fleet.ledger import Ledger
from shardsift.fleet.process.broker import queue_length
from shardsift.producer.planning.enqueue import check_output
from shardsift.producer.planning.options import RunOptions
from shardsift.producer.planning.plan import plan_run
from shardsift.producer.publishing.publish import finalize_run
from shardsift.producer.status import run_status
from shardsift.producer.status.advice import what_next
from support.enqueued_runs import Command
from support.ledger_states import claimed
from support.models import tiny_classifier
from support.processes import call_command
from support.records import a_manifest, a_shard


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
            ({"text_column": "content"}, 'has no column "content"'),
            ({"max_tokens": 9_000}, r"takes at most 512 tokens, not 9000\. Choose another --max-tokens"),
            ({"where": "nope > 3"}, 'there is no column "nope"; there are: text, id, length, shard, row, score'),
            ({"min_score": float("nan")}, "--min-score nan is not a number that a score can reach"),
            ({"min_score": 3.0, "where": "score > 3"}, "Use only one of"),
            ({"where": " "}, "--where is empty: is a shell variable unset"),
            ({"function_to_apply": "softmax", "keep_all": True}, "Softmax makes every score .* one output 1"),
            ({"input_uris": ("",)}, "--input is empty: is a shell variable unset"),
            ({"output_uri": ""}, "Say where to put the rows: --output"),
            ({"crawls": ("CC-MAIN-2024-10",)}, "either --crawl .* or --input"),
        ],
        ids=str,
    )
    def test_a_wrong_option_is_an_error(self, options: RunOptions, changes: dict[str, Any], says: str) -> None:
        refused(options, says, **changes)

    @pytest.mark.parametrize(
        ("config", "says"),
        [
            (None, "has no config.json, so it is not a model"),
            (json.dumps({"architectures": ["GPT2LMHeadModel"]}), "is not a sequence classifier: .*GPT2LMHeadModel"),
            (json.dumps({"architectures": "BertModel"}), "its config.json says BertModel"),
        ],
    )
    def test_a_model_that_is_not_a_classifier_is_an_error(
        self, options: RunOptions, tmp_path: Path, config: str | None, says: str
    ) -> None:
        model = tmp_path / "model"
        model.mkdir()
        if config is not None:
            (model / "config.json").write_text(config)

        refused(options, says, models=(str(model),))

    @pytest.mark.parametrize("content", [b"", b"PAR1" + b"\0" * 100 + b"PAR1"])
    def test_a_broken_first_shard_is_an_error(self, options: RunOptions, source: Path, content: bytes) -> None:
        (source / "a.parquet").write_bytes(content)

        for limit in (None, 5):
            says = "a.parquet: .*(not a readable Parquet file|may be damaged)"
            refused(options, says, limit_rows=limit)

    def test_links_hide_no_output_in_the_input(self, options: RunOptions, source: Path, tmp_path: Path) -> None:
        linked_input, linked_output = tmp_path / "in-link", tmp_path / "out-link"
        linked_input.symlink_to(source)
        (source / "below").mkdir()
        linked_output.symlink_to(source / "below")

        says = rf"The output {source}/(below/)?out lies in the input folder"
        refused(options, says, output_uri=f"{linked_input}/out")
        refused(options, says, output_uri=f"{linked_output}/out")
        refused(options, says, input_uris=(f"file://{source}",), output_uri=f"file://{source}/out")
        refused(options, says, input_uris=(f"{linked_input}/**/*.parquet",), output_uri=f"{source}/out")
        by_glob = replace(options, input_uris=(f"{source}/*.parquet",))
        among = f"The output {source}(/below)? would be among the files of --input"
        refused(by_glob, among, output_uri=f"{linked_input}")
        refused(options, among, input_uris=(f"{source}/*/*.parquet",), output_uri=f"{source}/below")
        assert plan_run(replace(by_glob, output_uri=f"{source}/out")).shards

    def test_an_input_with_two_columns_of_one_name_is_an_error(self, options: RunOptions, source: Path) -> None:
        twice = pa.table([["a"], ["b"], ["c"]], names=["text", "id", "id"])
        pq.write_table(twice, source / "a.parquet")

        refused(options, 'Shard a has several columns "id"')

    @pytest.mark.parametrize(
        ("where", "says"),
        [
            ("score > 0.5 and label IN ('LABEL_0', '5 star')", "does not give: '5 star'. Its labels: LABEL_0, LABEL_1"),
            ("LABEL <> 'label_0'", "does not give: 'label_0'. Did you mean 'LABEL_0'"),
        ],
    )
    def test_a_label_that_no_model_has_is_an_error(
        self, options: RunOptions, tmp_path: Path, where: str, says: str
    ) -> None:
        options = replace(options, models=(str(tiny_classifier(tmp_path / "two", labels=2)),))

        refused(options, says, where=where)

        assert plan_run(replace(options, where="label = 'LABEL_1'"))


def refused(options: RunOptions, says: str, **changes: Any) -> None:
    with pytest.raises(UsageError, match=says) as error:
        plan_run(replace(options, **changes))
    assert "\n" not in str(error.value)


class TestOutputsThatAreRefused:
    """Errors that only enqueueing finds leave no run behind."""

    def test_an_output_of_another_run_however_that_run_is_known(self, command: Command) -> None:
        first, plan = command.do(), command.plan()
        command.ledger.renew(claimed(command.ledger, first.run_id), rows=5)
        says = rf"holds the data of another run, {first.run_id}\. It differs in: the filter\."

        with pytest.raises(UsageError, match=says):
            command.do(min_score=1.0)
        assert command.ledger.run_ids() == [first.run_id]
        assert not command.ledger.state(first.run_id).cancelled
        assert queue_length(command.ledger.redis, first.queue) == 3

        command.ledger.redis.flushall()
        with pytest.raises(UsageError, match=says):
            command.do(min_score=1.0)
        (command.out / ".shardsift" / first.run_id / "spec.json").unlink()
        (command.out / "manifest.parquet").write_bytes(a_manifest(first.run_id, [], spec=plan.spec))
        with pytest.raises(UsageError, match=says):
            command.do(min_score=1.0)


class TestARunThatHasScoredNothing:
    """Another run of the same output takes its place, as when its --dtype was found to be too coarse."""

    def test_an_unscored_run_gives_way_and_comes_back_by_its_command(self, command: Command, redis_url: str) -> None:
        first = command.do()

        second = command.do(dtype="float32")

        assert (first.instead_of, second.instead_of) == (None, first.run_id)
        assert command.ledger.state(first.run_id).cancelled
        taken = f"Run {second.run_id} of the same output has taken its place."
        advice = f"{taken} To do both, enqueue this one with another --output."
        assert what_next(run_status(command.ledger, first.run_id)) == [advice]
        outcome = finalize_run(command.ledger, first.run_id, without_failed=True)
        assert f"{outcome.reason}." == f"it is cancelled. {advice}"
        with pytest.raises(UsageError, match=f"{advice}$"):
            command.ledger.pause(first.run_id)
        assert [path.name for path in (command.out / ".shardsift").iterdir()] == [second.run_id]
        assert command.ledger.counts(second.run_id).queued == 3

        retried = call_command("producer", "retry", first.run_id, environment={"REDIS_URL": redis_url})

        assert (retried.returncode, command.ledger.state(first.run_id).cancelled) == (2, True)
        assert f"holds the data of another run, {second.run_id}" in retried.stderr

        again = command.do()

        assert (again.run_id, again.instead_of) == (first.run_id, second.run_id)
        assert not command.ledger.state(first.run_id).cancelled

    def test_a_run_that_failed_before_its_first_row_gives_way_to_another(self, command: Command) -> None:
        first = command.do()
        for name in "abc":
            command.ledger.fail(claimed(command.ledger, first.run_id, a_shard(name)), "The scores are not finite.", "")

        assert command.do(dtype="float32").instead_of == first.run_id
        assert not [line for line in what_next(run_status(command.ledger, first.run_id)) if "producer retry" in line]

    @pytest.mark.parametrize("is_published", [False, True])
    def test_a_run_with_done_shards_stays_though_redis_lost_them(self, is_published: bool, command: Command) -> None:
        first = command.do()
        spec = command.ledger.spec(first.run_id)
        for name in "abc" if is_published else "a":
            shard = a_shard(name)
            command.ledger.complete(claimed(command.ledger, first.run_id, shard), command.stage(first.run_id, shard))
        if is_published:
            finalize_run(command.ledger, first.run_id, without_failed=False)
        before = {path: path.read_bytes() for path in command.out.rglob("*") if path.is_file()}
        command.ledger.redis.flushall()
        command.ledger.add_shards(spec, [a_shard(name) for name in "abc"], now=0)  # then the producer died

        with pytest.raises(UsageError, match=f"holds the data of another run, {first.run_id}"):
            command.do(dtype="float32")

        assert {path: path.read_bytes() for path in command.out.rglob("*") if path.is_file()} == before
        assert not command.ledger.state(first.run_id).cancelled


def test_a_dry_run_refuses_what_the_run_refuses_and_cancels_nothing(command: Command) -> None:
    first = command.do()
    other = command.plan(dtype="float32")

    check_output(command.plan(), command.ledger)
    check_output(other, command.ledger)  # the first has scored nothing
    command.ledger.renew(claimed(command.ledger, first.run_id), rows=5)
    check_output(command.plan(), command.ledger)
    for known in (command.ledger, None):
        with pytest.raises(UsageError, match=f"holds the data of another run, {first.run_id}"):
            check_output(other, known)
    assert not command.ledger.state(first.run_id).cancelled
