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
from shardsift.fleet.storage.output import CARD_PATH, MANIFEST_PATH
from shardsift.producer.verify.verify import verify
from support.published_dataset import ROWS, Dataset, a_file
from support.same_footer import rewrite_shuffled, write_uncompressed


class TestFiles:
    def test_a_flipped_bit_is_found(self, dataset: Dataset) -> None:
        file = dataset.output / a_file(dataset)

        content = bytearray(file.read_bytes())
        content[len(content) // 2] ^= 1
        file.write_bytes(content)

        assert dataset.faults() == [f"{a_file(dataset)}: has changed since it was written (its sha256 differs)"]

    def test_a_changed_card_is_told_and_is_no_fault(self, dataset: Dataset) -> None:
        card = dataset.output / CARD_PATH
        card.write_bytes(card.read_bytes().replace(b"float32", b"float3z"))

        found = dataset.verify()

        assert found.is_sound
        assert "README.md has changed since it was published" in str(found)

    def test_a_foreign_file_is_named(self, dataset: Dataset) -> None:
        shutil.copy(dataset.output / a_file(dataset), dataset.output / "data" / "zzz.parquet")

        found = dataset.verify()

        assert [str(fault) for fault in found.faults] == ["data/zzz.parquet: is not a file of this run"]
        assert "Remove them yourself." in str(found)
        assert "To repair it" not in str(found)

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

        assert dataset.faults() == [f"{a_file(dataset)}: has other scores than the scores file"]

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

    def test_other_texts_of_dropped_rows_are_found_though_the_footer_is_the_same(
        self, published: Callable[..., Dataset], tmp_path: Path
    ) -> None:
        (tmp_path / "in").mkdir()
        texts = [f"A text about the number {number}." for number in range(100, 160)]
        write_uncompressed(tmp_path / "in/a.parquet", pa.table({"text": texts}))
        dataset = published(input_uris=(str(tmp_path / "in"),), where="score > 1000")
        rewrite_shuffled(tmp_path / "in/a.parquet")

        found = verify(str(dataset.output), source=(str(tmp_path / "in"),))

        problem = "has the scores of other texts than the input's, between its rows 0 and 60"
        assert [str(fault) for fault in found.faults] == [f"scores/a.parquet: {problem}"]

    def test_a_shard_that_was_left_out_silently_is_found(self, dataset: Dataset) -> None:
        shard = dataset.manifest.receipts[1].shard

        dataset.leave_out(shard)

        part = "manifest.parquet: lists 2 of the run's 3 shards"
        assert dataset.faults() == [part]
        assert dataset.faults(with_source=True) == [part, f"data/{shard}.parquet: is missing: the input has this shard"]

    def test_another_input_is_a_usage_error(self, dataset: Dataset, tmp_path: Path) -> None:
        (tmp_path / "other").mkdir()
        pq.write_table(pa.table({"text": ["a"]}), tmp_path / "other" / "zzz.parquet")

        with pytest.raises(UsageError, match="None of the 3 shards of .* is in .*other"):
            verify(str(dataset.output), source=(str(tmp_path / "other"),))

    def test_another_input_with_files_of_the_same_names_is_a_usage_error(
        self, dataset: Dataset, tmp_path: Path
    ) -> None:
        (tmp_path / "other").mkdir()
        for file in sorted(dataset.source.glob("*.parquet"))[:2]:
            pq.write_table(pq.read_table(file).slice(1), tmp_path / "other" / file.name)

        with pytest.raises(UsageError) as refused:
            verify(str(dataset.output), source=(str(tmp_path / "other"),))

        assert str(refused.value) == (
            f"{tmp_path}/other is not the input of the run at {dataset.output}: it has 2 shards of the same names, "
            "such as 000_00000, but with other bytes than the run has read. Name the input of the run with --input."
        )

    def test_a_copy_of_the_input_on_another_storage_is_compared_by_its_rows(self, dataset: Dataset) -> None:
        """The Hub identifies a file by its sha256, a folder by its footer."""
        dataset.name_sources_as_the_hub_does()

        assert dataset.faults(with_source=True) == []

        file = min(dataset.source.glob("*.parquet"))
        pq.write_table(pq.read_table(file).slice(1), file)
        assert len(dataset.faults(with_source=True)) == 1

    def test_rows_at_the_end_of_the_input_that_no_worker_read_are_found(self, dataset: Dataset) -> None:
        dataset.name_sources_as_the_hub_does()
        source = min(dataset.source.glob("*.parquet"))
        rows = pq.read_table(source)

        pq.write_table(pa.concat_tables([rows, rows.slice(0, 1)]), source)

        assert dataset.faults(with_source=True) == [f"scores/{source.name}: has not the rows of the input"]

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


def _first_dropped_as(scores: list[float | None], score: float) -> pa.ChunkedArray:
    """The scores, with the first one that the filter drops changed."""
    place = next(place for place, known in enumerate(scores) if known is not None and known < 2.5)
    return pa.chunked_array([[*scores[:place], score, *scores[place + 1 :]]])


def _with(rows: pa.Table, name: str, values: pa.ChunkedArray) -> pa.Table:
    place = rows.schema.get_field_index(name)
    return rows.set_column(place, rows.schema.field(name), values.cast(rows.schema.field(name).type))
