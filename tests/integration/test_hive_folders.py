"""What the names of files, folders and classes say is true of the rows. Names of folders can be read as columns."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import datasets
import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from stand_in import StandInScorer

from shardsift.fleet.errors import UsageError
from shardsift.producer.planning.plan import plan_run
from shardsift.producer.verify.verify import verify
from support.line_files import write_csv, write_json_lines
from support.outputs import published_rows
from support.small_run import Runs

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


@pytest.fixture
def runs(runs: Runs, tmp_path: Path) -> Runs:
    return replace(runs, scorer=StandInScorer("cpu", tmp_path / "work.log", rows_a_batch=4, seconds_a_batch=0))


def published(runs: Runs, source: Path, **options: Any) -> Path:
    """Publish a run of merged files, unless the options say otherwise."""
    out = runs.publish(source, **{"target_file_size": "1GB", **options})
    assert verify(str(out), source=(str(source),)).faults == ()
    return out


def files_below(folder: Path) -> list[str]:
    return sorted(str(file.relative_to(folder)) for file in folder.rglob("*.parquet"))


class TestMergedFiles:
    @pytest.mark.parametrize(
        ("names", "files"),
        [
            (("de/a", "de/b", "en/a"), ["de/a", "en/a"]),
            (("year=2023/lang=de/a", "year=2023/lang=en/a"), ["year=2023/lang=de/a", "year=2023/lang=en/a"]),
            (("a/year=2023-x", "a/year=2024-x"), ["a/year=2023-x", "a/year=2024-x"]),
            (("test-0-of-1", "train-0-of-2", "train-1-of-2"), ["test-0-of-1", "train-0-of-2"]),
            (("contest-0", "latest-1", "training_0"), ["contest-0", "training_0"]),
        ],
        ids=str,
    )
    def test_merged_files_have_shards_of_one_folder_value_and_split(
        self, runs: Runs, tmp_path: Path, names: tuple[str, ...], files: list[str]
    ) -> None:
        out = published(runs, write_folders(tmp_path / "in", names))

        for folder in ("data", "scores"):
            assert files_below(out / folder) == [f"{file}.parquet" for file in files]
        assert sorted(published_rows(out)["text"].to_pylist()) == sorted(
            f"{n} {row}" for n in names for row in range(3)
        )

    @pytest.mark.parametrize(("others", "kind"), [(["neg", "pos"], "ClassLabel"), (["pos", "neg"], "Value")])
    def test_merged_files_have_the_names_of_classes_that_all_their_shards_have(
        self, runs: Runs, tmp_path: Path, others: list[str], kind: str
    ) -> None:
        for name, classes in (("part-0", ["neg", "pos"]), ("part-1", ["neg", "pos"]), ("part-2", others)):
            features = {"text": datasets.Value("string"), "label": datasets.ClassLabel(names=classes)}
            rows = {"text": [name, name], "label": [0, 1]}
            (tmp_path / "in").mkdir(exist_ok=True)
            datasets.Dataset.from_dict(rows, datasets.Features(features)).to_parquet(tmp_path / f"in/{name}.parquet")

        out = published(runs, tmp_path / "in")

        (file,) = (out / "data").glob("*.parquet")
        loaded = datasets.load_dataset(
            "parquet", data_files=str(file), split="train", cache_dir=str(tmp_path / "cache")
        )
        assert type(loaded.features["label"]).__name__ == kind
        assert loaded["label"] == [0, 1] * 3


class TestColumns:
    """`--columns year` reads the value of the folder `year=2024`."""

    @pytest.mark.parametrize(
        ("ending", "columns"), [(".parquet", "lang,year"), (".jsonl", "n,lang,text,year"), (".csv", "year,text,lang,n")]
    )
    @pytest.mark.parametrize("size", ["1GB", "none"])
    def test_columns_have_the_values_of_folders_as_text_for_every_reader_and_filter(
        self, runs: Runs, tmp_path: Path, ending: str, columns: str, size: str
    ) -> None:
        source = write_folders(tmp_path / "in", tuple(f"{place}/part" for place in HIVE), ending=ending)
        options = {"columns": columns, "where": "year >= '2023' AND lang IS DISTINCT FROM 'en'"}

        out = published(runs, source, target_file_size=size, text_column="{year} {text}", **options)

        expected = {
            (*HIVE[place], f"{place}/part {row}") for place in HIVE if HIVE[place][1] != "en" for row in range(3)
        }
        in_duckdb = duckdb.sql(f"SELECT year, lang, text FROM '{out}/data/**/*.parquet'").fetchall()
        in_pandas = pd.read_parquet(out / "data")[["year", "lang", "text"]].astype(object).replace({np.nan: None})
        loaded = datasets.load_dataset(str(out), split="train", cache_dir=str(tmp_path / "cache"))
        in_datasets = {(row["year"], row["lang"], row["text"]) for row in loaded}
        assert {*in_duckdb} == {*in_pandas.itertuples(index=False, name=None)} == in_datasets == expected
        assert "--columns" in (out / "README.md").read_text()

    def test_values_with_an_equals_sign_are_in_no_folder_of_the_output(self, runs: Runs, tmp_path: Path) -> None:
        source = write_folders(tmp_path / "in", ("math=a=1/part", "math=b/part"))

        out = published(runs, source, columns="math", target_file_size="none")

        assert {*published_rows(out)["math"].to_pylist()} == {"a=1", "b"}
        assert sorted(path.name for path in (out / "data").iterdir()) == ["math-a-1", "math-b"]

    def test_columns_of_folders_are_there_in_a_refilter_and_rank_rows(self, runs: Runs, tmp_path: Path) -> None:
        source = write_folders(tmp_path / "in", tuple(f"{place}/part" for place in HIVE))
        earlier = published(runs, source, columns="year")

        again = runs.refilter(earlier, keep_top="50%", within="year")

        assert verify(str(again), source=(str(source),)).faults == ()
        years = published_rows(again)["year"].to_pylist()
        assert years.count("2023") >= 3 <= years.count("2024")

    @pytest.mark.parametrize(
        ("names", "ending", "columns", "says"),
        [
            (("year=2023/a",), ".parquet", "year,n", "Of Parquet files every column is read.* has: year. Leave out"),
            (
                ("year=2023/a",),
                ".jsonl",
                "text,year:int64",
                "--columns year:int64: the values of folders are text. Write year",
            ),
            (("year=2023/a", "z/b"), ".jsonl", "text,year", "--columns year: .*/z/b.jsonl is in no folder year=…"),
            (("year=2023/a",), ".csv", "year", 'The column "text" is not read, because --columns leaves it out'),
        ],
        ids=str,
    )
    def test_columns_that_files_or_folders_cannot_give_are_refused_in_the_plan(
        self, runs: Runs, tmp_path: Path, names: tuple[str, ...], ending: str, columns: str, says: str
    ) -> None:
        source = write_folders(tmp_path / "in", names, ending=ending)

        with pytest.raises(UsageError, match=says):
            plan_run(runs.options(source, columns=columns))

    def test_columns_that_the_run_adds_are_in_no_folder(self, runs: Runs, tmp_path: Path) -> None:
        """DuckDB and Polars read the folder's value for the column's, and pandas reads neither."""
        shard = write_folders(tmp_path / "shard", ("Shard=5/part",))

        with pytest.raises(UsageError, match='/part.parquet is in a folder "score=…"'):
            plan_run(runs.options(write_folders(tmp_path / "score", ("score=5/part",))))
        assert plan_run(runs.options(shard)).spec.row_columns == ("shard_2", "row_2")

    def test_values_of_a_field_go_before_those_of_a_folder_of_the_same_name(self, runs: Runs, tmp_path: Path) -> None:
        source = write_folders(tmp_path / "in", ("n=7/a",), ending=".jsonl")

        out = published(runs, source, columns="text,n")

        assert published_rows(out)["n"].to_pylist() == [0, 1, 2]
