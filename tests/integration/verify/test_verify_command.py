"""`producer verify` finds nothing wrong with a sound dataset, says so, and exits with 1 if something is wrong."""

import json
import math
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from shardsift.producer.verify.verify import verify
from support.processes import call_command, run_command
from support.published_dataset import ROWS, SHARDS, Dataset, a_file


class TestASoundDataset:
    def test_a_sound_dataset_is_sound_with_its_totals(self, original: Dataset) -> None:
        found = original.verify(with_source=True)

        assert found.faults == ()
        assert (found.shards, found.files) == (SHARDS, 2 * SHARDS)
        assert (found.rows_in, found.rows_errored) == (SHARDS * ROWS, SHARDS)
        assert 0 < found.rows_kept < SHARDS * ROWS
        assert found.rows_in == found.rows_kept + found.rows_dropped + found.rows_errored

    def test_files_of_pandas_without_types_are_sound(self, published: Callable[..., Dataset], tmp_path: Path) -> None:
        (tmp_path / "in").mkdir()
        pd.DataFrame({"text": [], "tags": []}, dtype=object).to_parquet(tmp_path / "in/a.parquet")
        pd.DataFrame({"tags": [["one"], None], "text": ["a", "b"]}).to_parquet(tmp_path / "in/b.parquet")
        pd.DataFrame({"text": []}, dtype=object).to_parquet(tmp_path / "in/c.parquet")

        dataset = published(tmp_path / "in")

        assert dataset.faults(with_source=True) == []
        one, *others = (pq.read_schema(file) for file in sorted((dataset.output / "data").iterdir()))
        assert [schema.equals(one) for schema in others] == [True, True]
        assert pq.read_table(dataset.output / "data")["tags"].to_pylist() == [["one"], None]

    def test_values_that_python_lacks_are_sound(self, published: Callable[..., Dataset], tmp_path: Path) -> None:
        far, nan = pa.array([1 << 61] * 2, pa.timestamp("ms")), pa.array([math.nan] * 2)
        rows = pa.table({"text": ["a", "b"], "x": pa.StructArray.from_arrays([far, nan], ["t", "x"])})
        (tmp_path / "in").mkdir()
        pq.write_table(rows, tmp_path / "in/a.parquet")

        dataset = published(tmp_path / "in")

        assert dataset.faults(with_source=True) == []


class TestTheCommand:
    def test_a_sound_dataset_given_by_its_bare_name_exits_with_0_and_needs_no_redis(self, original: Dataset) -> None:
        nothing = {"REDIS_URL": "", "SHARDSIFT_STATE_DIR": str(original.output.parent / "nowhere")}

        answer = call_command(
            *("producer", "verify", "out", "--input", str(original.source), "--json"),
            environment=nothing,
            folder=original.output.parent,
        )

        assert answer.returncode == 0, answer.stderr
        assert json.loads(answer.stdout)["sound"] is True

    def test_verify_exits_with_1_and_names_the_damaged_file(self, dataset: Dataset) -> None:
        path = a_file(dataset)
        (dataset.output / path).unlink()

        answer = call_command("producer", "verify", str(dataset.output), environment={})

        assert answer.returncode == 1, answer.stderr
        *_, fault, remedy, verdict = answer.stdout.splitlines()
        assert (fault, verdict) == (f"{path}: is missing", "damaged: 1 fault")
        assert "--verify" in remedy

    def test_a_run_that_the_ledger_calls_published_is_damaged_if_its_output_is_gone(self, original: Dataset) -> None:
        found = verify(str(original.output.parent / "gone"), published_run=original.run_id)

        assert (found.run_id, [str(fault) for fault in found.faults]) == (
            original.run_id,
            ["manifest.parquet: is missing"],
        )
        assert "damaged: 1 fault" in found.lines()


def test_reading_a_dataset_starts_no_thread_of_arrow(original: Dataset) -> None:
    """A thread that frees a Python object while the process exits would abort it (apache/arrow#34314)."""
    script = """
import sys, psutil
from shardsift.producer.verify.verify import verify
from support.waiting import wait_until

threads = psutil.Process().num_threads
before = threads()
assert not verify(sys.argv[1], source=(sys.argv[2],)).faults
wait_until(lambda: threads() <= before, description="the threads of the filter have ended; a pool's would stay")
"""

    done = run_command(
        "python", "-c", script, original.output, original.source, environment={"PYTHONPATH": os.pathsep.join(sys.path)}
    )

    assert done.returncode == 0, done.stderr
