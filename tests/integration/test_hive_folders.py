"""What the names of files and folders say is true of the rows in them, and can be read as columns."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import datasets
import duckdb
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from stand_in import StandInScorer

from shardsift.fleet.errors import UsageError
from shardsift.fleet.ledger import Ledger
from shardsift.producer.planning.options import RunOptions
from shardsift.producer.planning.plan import plan_run
from shardsift.producer.planning.refilter import plan_refilter
from shardsift.producer.verify.verify import verify
from shardsift.worker.shard.stored_scores import load_stored_scores
from support.line_files import write_csv, write_json_lines
from support.outputs import published_rows
from support.small_run import publish_plan

HIVE = {
    "year=2023/lang=de": ("2023", "de"),
    "year=2023/lang=zh%2DHans": ("2023", "zh-Hans"),
    "year=2024/lang=__HIVE_DEFAULT_PARTITION__": ("2024", None),
    "year=2024/lang=en": ("2024", "en"),
}


def write_folders(folder: Path, names: tuple[str, ...], *, ending: str = ".parquet") -> Path:
    """A file of three rows at each name. Each row says in its text where it is."""
    for name in names:
        file = folder / f"{name}{ending}"
        file.parent.mkdir(parents=True, exist_ok=True)
        rows = [{"text": f"{name} {number}", "n": number} for number in range(3)]
        if ending == ".parquet":
            pq.write_table(pa.Table.from_pylist(rows), file)
        else:
            {".csv": write_csv, ".jsonl": write_json_lines}[ending](file, rows)
    return folder


class Runs:
    def __init__(self, ledger: Ledger, model: Path, folder: Path) -> None:
        self.ledger, self.model, self.folder = ledger, model, folder

    def options(self, source: Path, **options: Any) -> RunOptions:
        chosen: Mapping[str, Any] = {"target_file_size": "1GB", "keep_all": True, **options}
        return RunOptions(
            input_uris=(str(source),),
            models=(str(self.model),),
            dtype="float32",
            output_uri=str(self.folder / "out"),
            **chosen,
        )

    def publish(self, source: Path, **options: Any) -> Path:
        scorer = StandInScorer("cpu", self.folder / "work.log", rows_a_batch=4, seconds_a_batch=0)
        plan = plan_run(self.options(source, **options))
        publish_plan(self.ledger, scorer, plan, scratch=self.folder / "scratch")
        assert verify(plan.spec.output_uri, source=(str(source),)).faults == ()
        return self.folder / "out"


@pytest.fixture
def runs(ledger: Ledger, tiny_model: Path, tmp_path: Path) -> Runs:
    return Runs(ledger, tiny_model, tmp_path)


def files_below(folder: Path) -> list[str]:
    return sorted(str(file.relative_to(folder)) for file in folder.rglob("*.parquet"))


class TestMergedFiles:
    def test_never_lie_in_a_folder_that_is_not_true_of_all_their_rows(self, runs: Runs, tmp_path: Path) -> None:
        source = write_folders(tmp_path / "in", tuple(f"{folder}/part-{part}" for folder in HIVE for part in (0, 1)))

        out = runs.publish(source)

        for folder in ("data", "scores"):
            assert files_below(out / folder) == [f"{place}/part-0.parquet" for place in HIVE]
        sql = f"SELECT year, lang, text FROM read_parquet('{out}/data/**/*.parquet', hive_partitioning=true)"
        in_duckdb = {(str(year), lang, text) for year, lang, text in duckdb.sql(sql).fetchall()}
        in_arrow = {
            (str(row["year"]), row["lang"], row["text"])
            for row in ds.dataset(out / "data", partitioning="hive").to_table().to_pylist()
        }
        expected = {(*HIVE[place], f"{place}/part-{part} {row}") for place in HIVE for part in (0, 1) for row in range(3)}
        assert in_duckdb == in_arrow == expected
        loaded = datasets.load_dataset(str(out), split="train", cache_dir=str(tmp_path / "cache"))
        assert sorted(loaded["text"]) == sorted(text for _, _, text in expected)

    @pytest.mark.parametrize(
        ("names", "files"),
        [
            (("de/a", "de/b", "en/a"), ["de/a", "en/a"]),
            (("year=2023", "year=2024"), ["year=2023", "year=2024"]),
            (("a/year=2023-x", "a/year=2024-x"), ["a/year=2023-x", "a/year=2024-x"]),
            (("test-0-of-1", "train-0-of-2", "train-1-of-2"), ["test-0-of-1", "train-0-of-2"]),
            (("part-0", "part-1", "part-2"), ["part-0"]),
            (("contest-0", "latest-1", "training_0"), ["contest-0", "training_0"]),
        ],
        ids=str,
    )
    def test_have_shards_of_one_folder_value_and_split(
        self, runs: Runs, tmp_path: Path, names: tuple[str, ...], files: list[str]
    ) -> None:
        out = runs.publish(write_folders(tmp_path / "in", names))

        for folder in ("data", "scores"):
            assert files_below(out / folder) == [f"{file}.parquet" for file in files]
        assert sorted(published_rows(out)["text"].to_pylist()) == sorted(f"{n} {row}" for n in names for row in range(3))

