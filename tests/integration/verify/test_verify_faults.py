"""`producer verify` names each file that is lost, foreign or changed, and each row that does not fit."""

import math
import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from shardsift.fleet.errors import UsageError
from shardsift.fleet.storage.output import MANIFEST_PATH
from shardsift.producer.verify.verify import verify
from support.published_dataset import ROWS, Dataset, a_file
from support.same_footer import rewrite_shuffled, write_uncompressed


class TestFiles:
    def test_a_foreign_file_is_named(self, dataset: Dataset) -> None:
        shutil.copy(dataset.output / a_file(dataset), dataset.output / "data" / "zzz.parquet")

        found = dataset.verify()

        assert [str(fault) for fault in found.faults] == ["data/zzz.parquet: is not a file of this run"]
        assert "Remove them yourself." in str(found)
        assert "To repair it" not in str(found)

    @pytest.mark.parametrize("folder", ["data", "scores", ".shardsift/run"])
    def test_an_unfinished_output_or_another_programs_manifest_is_not_called_damaged(
        self, tmp_path: Path, folder: str
    ) -> None:
        (tmp_path / folder).mkdir(parents=True)

        with pytest.raises(UsageError, match="There is no shardsift output at"):
            verify(str(tmp_path))
        pq.write_table(pa.table({"a": [1]}), tmp_path / MANIFEST_PATH)
        with pytest.raises(UsageError, match="was not written by shardsift"):
            verify(str(tmp_path))

    @pytest.mark.parametrize("left", [{"data", "scores"}, {"README.md"}, {"data", ".shardsift"}])
    def test_a_lost_manifest_is_damage_if_anything_else_exists(self, dataset: Dataset, left: set[str]) -> None:
        for path in dataset.output.iterdir():
            if path.name not in left:
                shutil.rmtree(path) if path.is_dir() else path.unlink()

        assert dataset.faults() == ["manifest.parquet: is missing"]


def _with(rows: pa.Table, name: str, values: pa.ChunkedArray) -> pa.Table:
    place = rows.schema.get_field_index(name)
    return rows.set_column(place, rows.schema.field(name), values.cast(rows.schema.field(name).type))


def _first_dropped_as(rows: pa.Table, score: float) -> pa.Table:
    """The rows of a scores file, with the score of the first one that the filter drops changed."""
    scores = rows["score"].to_pylist()
    place = next(place for place, known in enumerate(scores) if known is not None and known < 2.5)
    return _with(rows, "score", pa.chunked_array([[*scores[:place], score, *scores[place + 1 :]]]))


class TestRows:
    @pytest.mark.parametrize(
        ("kind", "change", "fault"),
        [
            (
                "data",
                lambda rows: pa.concat_tables([rows.slice(0, 1), rows.slice(0, len(rows) - 1)]),
                "has a row twice, or rows out of order",
            ),
            ("data", lambda rows: rows.slice(1), "rows, its receipt says"),
            (
                "data",
                lambda rows: _with(rows, "score", pc.subtract(rows["score"], 1)),
                "do not pass the filter score >= 2.5",
            ),
            (
                "data",
                lambda rows: _with(rows, "score", pc.add(rows["score"], 1)),
                "has other scores than the scores file",
            ),
            ("data", lambda rows: rows.drop_columns(["score"]), "has other columns than the run's spec says"),
            *(
                (
                    "scores",
                    lambda rows, score=score: _first_dropped_as(rows, score),
                    'its scores in "score" are spread differently than its receipt says',
                )
                for score in (7.5, math.nan)
            ),
            ("scores", lambda rows: rows.slice(1), f"holds {ROWS - 1} rows, its receipt says {ROWS}"),
            ("scores", lambda rows: rows.slice(1), "its rows are not numbered from 0, each once"),
        ],
    )
    def test_a_row_or_column_that_is_not_as_it_was_scored_is_found(
        self, dataset: Dataset, kind: str, change: Callable[[pa.Table], pa.Table], fault: str
    ) -> None:
        path = a_file(dataset, kind)

        dataset.rewrite(path, change)

        assert any(found.startswith(f"{path}: ") and fault in found for found in dataset.faults())


class TestSource:
    def test_a_text_that_differs_from_the_input_is_found(self, dataset: Dataset) -> None:
        def change(rows: pa.Table) -> pa.Table:
            texts = rows["text"].to_pylist()
            return _with(rows, "text", pa.chunked_array([["another text", *texts[1:]]], rows.schema.field("text").type))

        dataset.rewrite(a_file(dataset), change)

        assert dataset.faults() == []
        assert len(dataset.faults(with_source=True)) == 1
        assert 'differs from the input in column "text"' in dataset.faults(with_source=True)[0]

    def test_other_texts_under_one_footer_are_found(self, published: Callable[..., Dataset], tmp_path: Path) -> None:
        (tmp_path / "in").mkdir()
        texts = [f"A text about the number {number}." for number in range(100, 160)]
        write_uncompressed(tmp_path / "in/a.parquet", pa.table({"text": texts}))
        dataset = published(tmp_path / "in", where="score > 1000")
        rewrite_shuffled(tmp_path / "in/a.parquet")

        problem = "has the scores of other texts than the input's, between its rows 0 and 60"
        assert dataset.faults(with_source=True) == [f"scores/a.parquet: {problem}"]

    def test_a_shard_that_was_left_out_silently_is_found(self, dataset: Dataset) -> None:
        shard = dataset.manifest.receipts[1].shard

        dataset.leave_out(shard)

        part = "manifest.parquet: lists 2 of the run's 3 shards"
        assert dataset.faults() == [part]
        assert dataset.faults(with_source=True) == [part, f"data/{shard}.parquet: is missing: the input has this shard"]

    @pytest.mark.parametrize(
        ("names", "says"),
        [
            (("zzz",), "None of the 3 shards of .* is in .*other"),
            (
                ("000_00000", "000_00001"),
                "other is not the input of the run at .*: it has 2 shards of the same names, such as 000_00000, "
                r"but with other bytes than the run has read\. Name the input of the run with --input\.$",
            ),
        ],
    )
    def test_other_input_is_refused(self, dataset: Dataset, tmp_path: Path, names: tuple[str, ...], says: str) -> None:
        (tmp_path / "other").mkdir()
        for name in names:
            pq.write_table(pa.table({"text": ["a"]}), tmp_path / f"other/{name}.parquet")

        with pytest.raises(UsageError, match=says):
            verify(str(dataset.output), source=(str(tmp_path / "other"),))

    def test_a_copy_of_the_input_on_another_storage_is_compared_by_its_rows(self, dataset: Dataset) -> None:
        """The Hub identifies a file by its sha256, a folder by its footer."""
        dataset.name_sources_as_the_hub_does()
        file = min(dataset.source.glob("*.parquet"))
        rows = pq.read_table(file)

        as_it_is = dataset.faults(with_source=True)
        pq.write_table(rows.slice(1), file)
        with_a_row_less = dataset.faults(with_source=True)
        pq.write_table(pa.concat_tables([rows, rows.slice(0, 1)]), file)
        with_a_row_more = dataset.faults(with_source=True)

        assert (as_it_is, len(with_a_row_less)) == ([], 1)
        assert with_a_row_more == [f"scores/{file.name}: has not the rows of the input"]

    def test_a_shard_that_failed_is_missing(self, dataset: Dataset) -> None:
        shard = dataset.manifest.receipts[1].shard

        dataset.leave_out(shard, said=True)

        assert dataset.faults(with_source=True) == [
            f"data/{shard}.parquet: is missing: its shard failed, and the run was published without it"
        ]
        told = str(dataset.verify())
        assert f"After fixing what made 1 shard fail, run: producer retry {dataset.manifest.run_id}" in told
        assert "To repair it" not in told

    def test_shards_of_which_the_source_has_no_file_are_named_and_no_damage(self, dataset: Dataset) -> None:
        first, *others = sorted(dataset.source.glob("*.parquet"))

        found = verify(str(dataset.output), source=(str(first),))

        assert found.is_sound
        assert found.not_compared == tuple(file.stem for file in others)
        assert (
            "2 shards not compared with the input, because --input names no such files: 000_00001, 000_00002"
            in found.lines()
        )

    def test_a_changed_input_is_distinguished_from_a_wrong_dataset(self, dataset: Dataset) -> None:
        file = min(dataset.source.glob("*.parquet"))

        pq.write_table(pq.read_table(file).slice(1), file)

        (fault,) = dataset.faults(with_source=True)
        assert "was made of other bytes than" in fault
