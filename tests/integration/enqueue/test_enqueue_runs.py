"""Enqueueing creates one run with one task per shard."""

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from shardsift.fleet.errors import UsageError
from shardsift.fleet.process.broker import queue_length
from shardsift.fleet.run.spec import disclosed_spec
from shardsift.producer.planning.options import RunOptions
from shardsift.producer.planning.plan import plan_run
from support.enqueued_runs import Command


class TestEnqueueing:
    def test_each_shard_becomes_a_task_and_what_lies_beside_the_output_names_no_folder(self, command: Command) -> None:
        done = command.do()

        assert (done.added, done.sent, done.counts.shards, done.counts.queued) == (3, 3, 3, 3)
        assert command.ledger.run_ids() == [done.run_id]
        assert queue_length(command.ledger.redis, done.queue) == 3
        beside = (command.out / ".shardsift" / done.run_id / "spec.json").read_bytes()
        assert beside == disclosed_spec(command.ledger.spec(done.run_id)).to_json()
        assert str(command.out.parent) not in beside.decode()

    @pytest.mark.parametrize(
        ("field", "uri"),
        [
            ("input_uris", ("https://bucket.s3.amazonaws.com/a.parquet?X-Amz-Expires=60&X-Amz-Signature=s3cret",)),
            ("output_uri", "s3://KEY:s3cret@bucket/out"),
        ],
    )
    def test_an_address_with_a_secret_is_refused_without_it(self, options: RunOptions, field: str, uri: str) -> None:
        with pytest.raises(UsageError, match="carries a password, token or signature.*in the environment") as refused:
            plan_run(replace(options, **{field: uri}))

        assert "s3cret" not in str(refused.value)

    def test_columns_called_shard_or_row_are_kept_beside_the_runs(self, options: RunOptions, source: Path) -> None:
        for names in ({"id": "Row"}, {"Row": "shard", "length": "row_2"}):
            for file in source.iterdir():
                rows = pq.read_table(file)
                pq.write_table(rows.rename_columns([names.get(name, name) for name in rows.column_names]), file)
            number = 1 + len(names)

            assert plan_run(options).spec.row_columns == (f"shard_{number}", f"row_{number}")

    def test_a_relative_output_does_not_depend_on_the_workers_folder(
        self, options: RunOptions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)

        assert plan_run(replace(options, output_uri="out")).spec == plan_run(options).spec

    def test_a_list_without_a_value_in_a_file_has_the_type_of_the_next(self, options: RunOptions, source: Path) -> None:
        for name, tags in (("a", pa.array([[None]], pa.list_(pa.null()))), ("b", pa.array([[1]]))):
            pq.write_table(pa.table({"text": ["a"], "tags": tags}), source / f"{name}.parquet")

        assert dict(plan_run(options).spec.columns)["tags"] == "list<element: int64>"

    def test_rows_are_kept_from_a_score_of_3_unless_the_user_says_otherwise(self, options: RunOptions) -> None:
        filters = [plan_run(replace(options, **one)).spec.where for one in ({}, {"min_score": 0}, {"keep_all": True})]

        assert filters == ['"score" >= 3.0', '"score" >= 0', None]
