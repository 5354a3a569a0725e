"""`producer verify` reads a published dataset and reports everything that is wrong with it."""

import json
import math
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import fsspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
import redis

from fleet.errors import UsageError
from fleet.ledger import Ledger
from fleet.receipt import OutputFile, Receipt
from fleet.storage.manifest import manifest, mark_of, receipts_listed, spec_of
from fleet.storage.output import MANIFEST_PATH, Mark
from producer.demo.shards import write_shards
from producer.local.redis_server import embedded_redis
from producer.options import RunOptions
from producer.verify.report import Verification
from producer.verify.verify import verify
from support.outputs import file_sha256
from support.processes import call_command, run_command
from support.small_run import publish
from worker.scoring import SequenceClassifier, load_scorer

SHARDS, ROWS = 3, 40


@dataclass(frozen=True)
class Dataset:
    """A published dataset with its input, for one test to damage."""

    source: Path
    output: Path

    def verify(self, *, with_source: bool = False) -> Verification:
        return verify(str(self.output), source=(str(self.source),) if with_source else ())

    def faults(self, *, with_source: bool = False) -> list[str]:
        return [str(fault) for fault in self.verify(with_source=with_source).faults]

    @property
    def receipts(self) -> list[Receipt]:
        return receipts_listed((self.output / MANIFEST_PATH).read_bytes(), self.run_id)

    @property
    def run_id(self) -> str:
        mark = mark_of((self.output / MANIFEST_PATH).read_bytes())
        assert mark is not None
        return mark.run_id

    def rewrite(self, path: str, change: Callable[[pa.Table], pa.Table]) -> None:
        """Change the rows of a file and adapt the manifest, so that only the content of the rows is wrong."""
        file = self.output / path
        pq.write_table(change(pq.read_table(file)), file)
        self._write_manifest([_with_file(receipt, path, file) for receipt in self.receipts])

    def leave_out(self, shard: str, *, said: bool = False) -> None:
        """Publish the run without a shard. With `said`, the manifest names it, as for a run with failed shards."""
        gone = next(receipt for receipt in self.receipts if receipt.shard == shard)
        for file in (gone.data, gone.scores):
            (self.output / file.path).unlink()
        left = [receipt for receipt in self.receipts if receipt.shard != shard]
        self._write_manifest(left, left_out=(shard,) if said else ())

    def _write_manifest(self, receipts: list[Receipt], left_out: tuple[str, ...] = ()) -> None:
        run_id, spec = self.run_id, spec_of((self.output / MANIFEST_PATH).read_bytes())
        assert spec is not None
        content = manifest(spec, receipts, Mark.of(run_id, receipts), left_out=left_out)
        (self.output / MANIFEST_PATH).write_bytes(content)


def _with_file(receipt: Receipt, path: str, file: Path) -> Receipt:
    def now(one: OutputFile) -> OutputFile:
        if one.path != path:
            return one
        return replace(one, size_bytes=file.stat().st_size, sha256=file_sha256(file))

    return replace(receipt, data=now(receipt.data), scores=now(receipt.scores))


@pytest.fixture(scope="module")
def ledger(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ledger]:
    with (
        embedded_redis(tmp_path_factory.mktemp("redis")) as url,
        redis.Redis.from_url(url, decode_responses=True) as client,
    ):
        yield Ledger(client)


@pytest.fixture(scope="module")
def scorer(tiny_model: Path) -> SequenceClassifier:
    return load_scorer(str(tiny_model), "float32")


@pytest.fixture(scope="module")
def published(
    tmp_path_factory: pytest.TempPathFactory, ledger: Ledger, scorer: SequenceClassifier, tiny_model: Path
) -> Callable[..., Dataset]:
    """Publish a run of three shards of 40 rows, of which about half are kept and one per shard is errored."""

    def publish_it(**options: Any) -> Dataset:
        folder = tmp_path_factory.mktemp("dataset")
        write_shards(folder / "source", shards=SHARDS, rows=ROWS, seed=1)
        for shard in sorted((folder / "source").glob("*.parquet")):
            table = pq.read_table(shard)
            texts = pa.array([None, *table["text"].to_pylist()[1:]], table.schema.field("text").type)
            pq.write_table(
                table.set_column(table.schema.get_field_index("text"), table.schema.field("text"), texts), shard
            )
        chosen = RunOptions(
            **{
                "input_uris": (str(folder / "source"),),
                "model": str(tiny_model),
                "dtype": "float32",
                "where": "score >= 2.5",
                "output_uri": str(folder / "out"),
                **options,
            }
        )
        publish(ledger, scorer, chosen, scratch=folder / "scratch")
        return Dataset(source=folder / "source", output=folder / "out")

    return publish_it


@pytest.fixture(scope="module")
def original(published: Callable[..., Dataset]) -> Dataset:
    return published()


@pytest.fixture
def dataset(original: Dataset, tmp_path: Path) -> Dataset:
    """A copy of a sound dataset for one test."""
    shutil.copytree(original.output, tmp_path / "out")
    shutil.copytree(original.source, tmp_path / "source")
    return Dataset(source=tmp_path / "source", output=tmp_path / "out")


def a_file(dataset: Dataset, kind: str = "data") -> str:
    return f"{kind}/{sorted(path.name for path in (dataset.output / kind).iterdir())[1]}"


class TestASoundDataset:
    def test_is_sound_with_its_totals(self, original: Dataset) -> None:
        found = original.verify(with_source=True)

        assert found.faults == ()
        assert (found.shards, found.files, found.rows_in, found.rows_errored) == (
            SHARDS,
            2 * SHARDS,
            SHARDS * ROWS,
            SHARDS,
        )
        assert 0 < found.rows_kept < SHARDS * ROWS
        assert found.rows_in == found.rows_kept + found.rows_dropped + found.rows_errored

    @pytest.mark.parametrize("options", [{"no_row_columns": True}, {"where": None, "keep_all": True}])
    def test_is_sound_with_other_options(self, published: Callable[..., Dataset], options: dict[str, Any]) -> None:
        assert published(**options).faults(with_source=True) == []

    def test_is_sound_in_a_bucket(self, original: Dataset) -> None:
        bucket = fsspec.filesystem("memory")
        bucket.put(str(original.output), "/verify-bucket", recursive=True)

        found = verify("memory://verify-bucket")

        assert (found.faults, found.rows_in) == ((), SHARDS * ROWS)


class TestTheCommand:
    def test_a_sound_dataset_exits_with_0(self, original: Dataset) -> None:
        answer = call_command(
            "producer", "verify", str(original.output), "--source", str(original.source), "--json", environment={}
        )

        assert answer.returncode == 0, answer.stderr
        assert json.loads(answer.stdout)["sound"] is True

    def test_a_damaged_one_exits_with_1_and_names_the_file(self, dataset: Dataset) -> None:
        path = a_file(dataset)
        (dataset.output / path).unlink()

        answer = call_command("producer", "verify", str(dataset.output), environment={})

        assert answer.returncode == 1, answer.stderr
        *_, fault, remedy, verdict = answer.stdout.splitlines()
        assert (fault, verdict) == (f"{path}: is missing", "damaged: 1 fault")
        assert "--verify" in remedy

    def test_a_folder_in_which_nothing_is_published_exits_with_2_and_one_line(self, tmp_path: Path) -> None:
        answer = call_command("producer", "verify", str(tmp_path), environment={})

        assert (answer.returncode, answer.stdout) == (2, "")
        assert len(answer.stderr.splitlines()) == 1
        assert "There is no shardsift output at" in answer.stderr

    @pytest.mark.parametrize("damage", [Path.unlink, lambda file: file.write_bytes(b"PAR1" * 100)])
    def test_a_lost_or_damaged_manifest_is_damage_for_verify_as_for_status(
        self, dataset: Dataset, damage: Callable[[Path], object]
    ) -> None:
        damage(dataset.output / MANIFEST_PATH)

        answer = call_command("producer", "verify", str(dataset.output), "--json", environment={})

        assert answer.returncode == 1, answer.stderr
        found = json.loads(answer.stdout)
        assert (found["sound"], found["run_id"], len(found["faults"])) == (False, None, 1)

    def test_a_folder_can_be_given_by_its_bare_name_and_needs_no_redis(self, dataset: Dataset) -> None:
        nothing = {"REDIS_URL": "", "SHARDSIFT_STATE_DIR": str(dataset.output / "nowhere")}

        answer = call_command("producer", "verify", "out", environment=nothing, folder=dataset.output.parent)

        assert (answer.returncode, answer.stdout.splitlines()[-1]) == (0, "sound"), answer.stderr

    def test_a_run_that_the_ledger_calls_published_is_damaged_if_all_of_its_output_is_gone(
        self, original: Dataset, ledger: Ledger
    ) -> None:
        found = verify(str(original.output.parent / "gone"), published_run=original.run_id)

        assert (found.run_id, [str(fault) for fault in found.faults]) == (
            original.run_id,
            ["manifest.parquet: is missing"],
        )
        assert "damaged: 1 fault" in found.lines()


class TestFiles:
    @pytest.mark.parametrize("kind", ["data", "scores"])
    def test_a_deleted_file_is_missing(self, dataset: Dataset, kind: str) -> None:
        path = a_file(dataset, kind)

        (dataset.output / path).unlink()

        assert dataset.faults() == [f"{path}: is missing"]

    def test_a_flipped_bit_is_found(self, dataset: Dataset) -> None:
        file = dataset.output / a_file(dataset)

        content = bytearray(file.read_bytes())
        content[len(content) // 2] ^= 1
        file.write_bytes(content)

        assert dataset.faults() == [f"{a_file(dataset)}: has changed since it was written (its sha256 differs)"]

    def test_a_foreign_file_is_named(self, dataset: Dataset) -> None:
        shutil.copy(dataset.output / a_file(dataset), dataset.output / "data" / "zzz.parquet")

        assert dataset.faults() == ["data/zzz.parquet: is not a file of this run"]

    def test_nothing_published_is_a_usage_error(self, tmp_path: Path) -> None:
        with pytest.raises(UsageError, match="There is no shardsift output at"):
            verify(str(tmp_path))

    @pytest.mark.parametrize("folder", ["data", "scores", ".shardsift/run"])
    def test_another_folder_or_an_unfinished_output_is_not_called_damaged(self, tmp_path: Path, folder: str) -> None:
        (tmp_path / folder).mkdir(parents=True)

        with pytest.raises(UsageError, match="There is no shardsift output at"):
            verify(str(tmp_path))

    def test_another_programs_manifest_is_not_called_damaged(self, tmp_path: Path) -> None:
        pq.write_table(pa.table({"a": [1]}), tmp_path / MANIFEST_PATH)

        with pytest.raises(UsageError, match="was not written by shardsift"):
            verify(str(tmp_path))

    @pytest.mark.parametrize("left", [{"data", "scores"}, {"README.md"}, {"data", ".shardsift"}])
    def test_a_lost_manifest_is_damage_if_anything_else_of_the_run_exists(
        self, dataset: Dataset, left: set[str]
    ) -> None:
        for path in dataset.output.iterdir():
            if path.name not in left:
                shutil.rmtree(path) if path.is_dir() else path.unlink()

        assert dataset.faults() == ["manifest.parquet: is missing"]

    def test_a_manifest_that_cannot_be_read_is_damage(self, dataset: Dataset) -> None:
        (dataset.output / MANIFEST_PATH).write_bytes(b"PAR1" * 100)

        assert dataset.faults() == ["manifest.parquet: cannot be read"]


class TestRows:
    def test_a_duplicate_row_is_found(self, dataset: Dataset) -> None:
        dataset.rewrite(
            a_file(dataset), lambda rows: pa.concat_tables([rows.slice(0, 1), rows.slice(0, len(rows) - 1)])
        )

        assert f"{a_file(dataset)}: has a row twice, or rows out of order" in dataset.faults()

    def test_a_missing_row_is_found(self, dataset: Dataset) -> None:
        kept = pq.read_metadata(dataset.output / a_file(dataset)).num_rows

        dataset.rewrite(a_file(dataset), lambda rows: rows.slice(1))

        assert f"{a_file(dataset)}: holds {kept - 1} rows, its receipt says {kept}" in dataset.faults()

    def test_a_row_that_the_filter_drops_is_found(self, dataset: Dataset) -> None:
        dataset.rewrite(a_file(dataset), lambda rows: _with(rows, "score", pc.subtract(rows["score"], 1)))

        assert any("do not pass the filter score >= 2.5" in fault for fault in dataset.faults())

    def test_a_score_that_differs_from_the_score_file_is_found(self, dataset: Dataset) -> None:
        dataset.rewrite(a_file(dataset), lambda rows: _with(rows, "score", pc.add(rows["score"], 1)))

        assert dataset.faults() == [f"{a_file(dataset)}: has other scores than the score file"]

    @pytest.mark.parametrize("score", [7.5, math.nan])
    def test_a_score_file_with_another_distribution_than_the_card_is_found(
        self, dataset: Dataset, score: float
    ) -> None:
        path = a_file(dataset, "scores")

        dataset.rewrite(path, lambda rows: _with(rows, "score", _first_dropped_as(rows["score"].to_pylist(), score)))

        assert dataset.faults() == [f'{path}: its scores in "score" are spread differently than its receipt says']

    def test_a_missing_row_of_the_score_file_is_found(self, dataset: Dataset) -> None:
        path = a_file(dataset, "scores")

        dataset.rewrite(path, lambda rows: rows.slice(1))

        assert f"{path}: holds {ROWS - 1} rows, its receipt says {ROWS}" in dataset.faults()
        assert f"{path}: its rows are not numbered from 0, each once" in dataset.faults()

    def test_a_missing_column_is_found(self, dataset: Dataset) -> None:
        dataset.rewrite(a_file(dataset), lambda rows: rows.drop_columns(["score"]))

        assert any("has other columns than the run's spec says" in fault for fault in dataset.faults())


class TestSource:
    def test_a_text_that_differs_from_the_input_is_found(self, dataset: Dataset) -> None:
        def change(rows: pa.Table) -> pa.Table:
            texts = rows["text"].to_pylist()
            return _with(rows, "text", pa.chunked_array([["another text", *texts[1:]]], rows.schema.field("text").type))

        dataset.rewrite(a_file(dataset), change)

        assert dataset.faults() == []
        assert len(dataset.faults(with_source=True)) == 1
        assert 'differs from the input in column "text"' in dataset.faults(with_source=True)[0]

    def test_a_shard_that_was_left_out_silently_is_found(self, dataset: Dataset) -> None:
        shard = dataset.receipts[1].shard

        dataset.leave_out(shard)

        assert dataset.faults() == []
        assert dataset.faults(with_source=True) == [f"data/{shard}.parquet: is missing: the input has this shard"]

    def test_another_input_is_a_usage_error(self, dataset: Dataset, tmp_path: Path) -> None:
        (tmp_path / "other").mkdir()
        pq.write_table(pa.table({"text": ["a"]}), tmp_path / "other" / "zzz.parquet")

        with pytest.raises(UsageError, match="None of the 3 shards of .* is in .*other"):
            verify(str(dataset.output), source=(str(tmp_path / "other"),))

    def test_a_shard_that_failed_is_missing(self, dataset: Dataset) -> None:
        shard = dataset.receipts[1].shard

        dataset.leave_out(shard, said=True)

        assert dataset.faults(with_source=True) == [
            f"data/{shard}.parquet: is missing: its shard failed, and the run was published without it"
        ]

    def test_a_changed_input_is_distinguished_from_a_wrong_dataset(self, dataset: Dataset) -> None:
        file = sorted(dataset.source.glob("*.parquet"))[0]

        pq.write_table(pq.read_table(file).slice(1), file)

        (fault,) = dataset.faults(with_source=True)
        assert "was made of other bytes than" in fault


def _first_dropped_as(scores: list[float | None], score: float) -> pa.ChunkedArray:
    """The scores, with the first one that the filter drops changed."""
    place = next(place for place, known in enumerate(scores) if known is not None and known < 2.5)
    return pa.chunked_array([[*scores[:place], score, *scores[place + 1 :]]])


def _with(rows: pa.Table, name: str, values: pa.ChunkedArray) -> pa.Table:
    place = rows.schema.get_field_index(name)
    return rows.set_column(place, rows.schema.field(name), values.cast(rows.schema.field(name).type))


def test_reading_a_dataset_starts_no_thread_of_arrow(published: Callable[..., Dataset]) -> None:
    """A thread that frees a Python object while the process exits would abort it (apache/arrow#34314)."""
    dataset = published()
    script = """
import sys, psutil
from producer.verify.verify import verify
from support.waiting import wait_until

threads = psutil.Process().num_threads
before = threads()
assert not verify(sys.argv[1], source=(sys.argv[2],)).faults
wait_until(lambda: threads() <= before, description="the threads of the filter have ended; a pool's would stay")
"""

    done = run_command(
        "python", "-c", script, dataset.output, dataset.source, environment={"PYTHONPATH": os.pathsep.join(sys.path)}
    )

    assert done.returncode == 0, done.stderr
