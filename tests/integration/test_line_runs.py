"""Whole runs over JSON Lines and CSV: what they publish, byte for byte, is what the same rows give as Parquet."""

import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from celery import Celery

from shardsift.fleet.errors import UsageError
from shardsift.fleet.ledger import Ledger
from shardsift.fleet.storage.open_output import open_output
from shardsift.producer.local.demo_data import write_shards
from shardsift.producer.planning.plan import plan_run
from shardsift.producer.planning.retry import retry_run
from shardsift.producer.publishing.publish import finalize_run
from shardsift.producer.status import run_status
from shardsift.producer.status.screen import status_screen
from shardsift.producer.verify.verify import verify
from support.enqueued_runs import Command
from support.ledger_states import claimed
from support.line_files import write_as_lines, write_file, write_json_lines
from support.outputs import data_digests, manifest_lines, published_rows
from support.small_run import Runs, score

SHARDS, ROWS = 2, 30
ENDINGS = [".jsonl", ".jsonl.zst", ".json.gz", ".csv.gz"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same shards in each format, in a folder of its own."""
    folder = tmp_path_factory.mktemp("lines")
    write_shards(folder / "in.parquet", shards=SHARDS, rows=ROWS, seed=9)
    for file in (folder / "in.parquet").iterdir():
        rows = pq.read_table(file).to_pylist()
        rows[3]["text"] = None
        table = pq.read_table(file)
        pq.write_table(table.from_pylist(rows, table.schema), file)
    for ending in ENDINGS:
        write_as_lines(folder / "in.parquet", folder / f"in{ending}", ending)
    return folder


WHERE = "score >= 2.5 and token_count > 20"


def test_a_run_publishes_the_bytes_that_the_same_rows_give_as_parquet(runs: Runs, folder: Path) -> None:
    as_parquet = runs.publish(folder / "in.parquet", "as-parquet", where=WHERE)
    assert 0 < len(published_rows(as_parquet)) < SHARDS * ROWS

    for ending in (".jsonl.zst", ".json.gz", ".csv.gz"):
        output = runs.publish(folder / f"in{ending}", f"out{ending}", where=WHERE)

        assert data_digests(output) == data_digests(as_parquet), ending
        checked = verify(str(output), source=(str(folder / f"in{ending}"),))
        assert (checked.faults, checked.compared_with_source, checked.rows_errored) == ((), True, SHARDS)
        (line, _) = manifest_lines(output)
        assert line["source_uri"] == f"000_00000{ending}"
        assert line["source_identity"].startswith("sha256:")
        assert f"in{ending}" in (output / "README.md").read_text()


class TestBadRows:
    """A file with some rows that cannot be read is published without them."""

    @pytest.fixture
    def spoilt(self, folder: Path, tmp_path: Path) -> Path:
        """The shards as JSON Lines, with bad lines in the first row, in the middle and at the end of the first."""
        spoilt = tmp_path / "spoilt.jsonl"
        shutil.copytree(folder / "in.jsonl", spoilt)
        first = min(spoilt.iterdir())
        lines = first.read_bytes().splitlines()
        bad = [
            b'{"text": "\\ud800", "id": "x"}',
            b"<html>",
            b'{"text": "a", "token_count": "many"}',
            b'{"text": "\xff"}',
        ]
        first.write_bytes(b"\n".join([bad[0], *lines[:9], *bad[1:3], *lines[9:], bad[3]]))
        return spoilt

    def test_rows_beside_bad_ones_are_published_as_without_them(self, runs: Runs, folder: Path, spoilt: Path) -> None:
        whole = runs.publish(folder / "in.jsonl", "whole", where=WHERE)

        output = runs.publish(spoilt, where=WHERE, max_bad_rows=0.2)

        columns = [name for name in published_rows(whole).schema.names if name != "row"]
        assert published_rows(output).select(columns) == published_rows(whole).select(columns)
        checked = verify(str(output), source=(str(spoilt),))
        assert (checked.faults, checked.compared_with_source) == ((), True)
        assert (checked.rows_in, checked.rows_errored) == (SHARDS * ROWS + 4, SHARDS + 4)
        assert dict(manifest_lines(output)[0]["errors"]) == {
            "not valid JSON": 3,
            "null text": 1,
            "token_count is not int64": 1,
        }
        assert [line["rows_bad"] for line in manifest_lines(output)] == [4, 0]
        side = pq.read_table(output / "scores/000_00000.parquet")
        errors = {row: error for row, error in enumerate(side["error"].to_pylist()) if error is not None}
        assert {row: error.partition(":")[0] for row, error in errors.items()} == {
            0: "line 1",
            4: "null text",
            10: "line 11",
            11: "line 12",
            33: "line 34",
        }
        assert side["row"].to_pylist() == list(range(ROWS + 4))
        assert side["score"].is_null().to_pylist() == [row in errors for row in range(ROWS + 4)]


def test_too_many_bad_rows_in_small_shards_are_told_before_the_run_is_published(runs: Runs, tmp_path: Path) -> None:
    for name in "abcd":
        write_file(tmp_path / f"in/{name}.jsonl", b'{"text": "good"}\n' * 70 + b"<html>\n" * 5)
    plan = plan_run(runs.options(tmp_path / "in"))
    spec = plan.spec
    open_output(spec.output_uri, spec.run_id).reserve(spec)
    runs.ledger.create_run(spec, plan.shards, now=1.0)
    score(runs.ledger, runs.scorer, spec, plan.shards, scratch=tmp_path / "scratch")

    with pytest.raises(
        UsageError, match="20 rows of 300 cannot be read.*0.01 allows 10; --max-bad-rows 0.067 would do"
    ):
        finalize_run(runs.ledger, spec.run_id, without_failed=False)

    finalize_run(runs.ledger, spec.run_id, without_failed=True)
    assert len(published_rows(tmp_path / "out")) == 280


def test_fields_beyond_the_sample_are_left_out_and_told(runs: Runs, tmp_path: Path) -> None:
    lines = [{"text": "a", "meta": {"n": 1, "pad": "x" * (1 << 20)}}] * 25 + [
        {"text": "b", "meta": {"n": 2, "by": "me"}}
    ]
    write_json_lines(tmp_path / "in/a.jsonl", lines)

    out = runs.publish(tmp_path / "in")

    assert published_rows(out)["meta"].to_pylist()[-1] == {"n": 2, "pad": None}
    assert dict(manifest_lines(out)[0]["left_out"]) == {"meta.by": 1}
    assert "left out meta.by (1 row)" in status_screen(run_status(runs.ledger, runs.specs[out].run_id))
    assert "| Fields left out | `meta.by (1 row)` |" in (out / "README.md").read_text()


def test_a_changed_file_that_is_accepted_makes_no_other_run_although_it_has_other_fields(
    runs: Runs, ledger: Ledger, app: Celery, tmp_path: Path
) -> None:
    write_file(tmp_path / "in/a.jsonl", b'{"text": "good"}\n' * 3)
    command = Command(options=runs.options(tmp_path / "in"), ledger=ledger, app=app)
    run_id = command.do().run_id
    (shard,) = ledger.shards(run_id)
    write_file(tmp_path / "in/a.jsonl", b'{"text": "good", "more": 1}\n')
    ledger.fail(claimed(ledger, run_id, shard), "the input changed", "")

    assert retry_run(ledger, run_id).changed == ("a",)
    ledger.redis.flushall()

    assert command.do().run_id == run_id


class TestPlanning:
    @pytest.mark.parametrize(
        ("name", "content", "problem"),
        [
            ("a.jsonl", b"", "The first shard cannot be read. .*a.jsonl has no row with a field"),
            ("a.csv", b"id;text\n1;a\n", "Commas separate fields, and the first line holds their names"),
        ],
    )
    def test_a_first_shard_that_cannot_be_scored_is_told(
        self, runs: Runs, tmp_path: Path, name: str, content: bytes, problem: str
    ) -> None:
        file = write_file(tmp_path / name, content)

        with pytest.raises(UsageError, match=problem):
            plan_run(runs.options(file))
