"""Files of a table are not read without its log, and those of an unfinished write not at all."""

import re
from collections.abc import Iterator
from pathlib import Path

import fsspec
import pytest

from shardsift.fleet.errors import UsageError
from shardsift.fleet.inputs.open_input import list_files

TABLES = {
    "_delta_log/00000000000000000000.json": ("a Delta table: its _delta_log", "delta_scan('{table}')"),
    ".hoodie/hoodie.properties": ("a Hudi table: its .hoodie", "format('hudi').load('{table}')"),
    "metadata/00001-a.metadata.json": ("an Iceberg table: its metadata", "iceberg_scan('{table}')"),
    "metadata/v3.metadata.json.gz": ("an Iceberg table: its metadata", "iceberg_scan('{table}')"),
    "_spark_metadata/0": ("a Spark stream: its _spark_metadata", "spark.read.parquet('{table}')"),
}
INPUTS = {
    "itself": "table",
    "a file": "table/data/year=2024/a.parquet",
    "a folder in it": "table/data/year=2024",
    "a glob": "table/**/*.parquet",
    "a folder around it": ".",
    "a folder further around it": "..",
}


def write(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(b"")


def refusal(uri: str) -> str:
    with pytest.raises(UsageError) as refused:
        list_files(uri)
    return str(refused.value)


@pytest.fixture
def warehouse(tmp_path: Path) -> Path:
    folder = tmp_path / "house" / "ware"
    write(folder, "table/data/year=2024/a.parquet", "plain/data/metadata/b.parquet")
    return folder


@pytest.mark.parametrize("log", TABLES)
@pytest.mark.parametrize("named", INPUTS)
def test_a_table_is_refused_however_it_is_named(warehouse: Path, log: str, named: str) -> None:
    write(warehouse, f"table/{log}")
    table, advice = TABLES[log]

    uri = str(warehouse.parent) if INPUTS[named] == ".." else f"{warehouse}/{INPUTS[named]}".removesuffix("/.")
    says = refusal(uri)

    assert says.startswith(f"{warehouse}/table is {table} says which files and rows count")
    assert advice.format(table=warehouse / "table") in says
    assert list_files(f"{warehouse}/plain").files


class TestInABucket:
    @pytest.fixture(autouse=True)
    def _bucket(self) -> Iterator[None]:
        files = fsspec.filesystem("memory")
        files.pipe({"/b/t/_delta_log/0.json": b"", "/b/t/x=1/a.parquet": b"", "/b/plain/a.parquet": b""})
        yield
        files.rm("/b", recursive=True)

    @pytest.mark.parametrize("uri", ["b/t", "b", "b/t/x=1", "b/t/x=1/a.parquet", "b/t/*/a.parquet", "b/*/*/*.parquet"])
    def test_a_table_in_a_bucket_is_refused_however_it_is_named(self, uri: str) -> None:
        assert "memory:///b/t is a Delta table" in refusal(f"memory://{uri}")
        assert list_files("memory://b/plain").files


@pytest.mark.parametrize("beside", ["year=2024/a.parquet", "a.parquet"])
@pytest.mark.parametrize(
    ("marks", "says"),
    [
        (["_temporary/0/task/a.parquet"], "_temporary"),
        (["_started_12", "_started_7", "_committed_7"], "_started_12"),
        (["_started_7"], "_started_7"),
    ],
)
def test_an_unfinished_write_is_refused(tmp_path: Path, beside: str, marks: list[str], says: str) -> None:
    write(tmp_path / "out", beside, *marks)

    for uri in ("out", "", f"out/{beside}", f"out/{beside.rpartition('/')[0]}", "out/**/*.parquet"):
        assert f"{tmp_path}/out has files of a write that is not finished: {says} is there" in refusal(
            f"{tmp_path}/{uri}"
        )


def test_a_file_of_a_ducklake_is_refused(tmp_path: Path) -> None:
    write(tmp_path, "main/t/ducklake-0197a3c5-94ff-7ab2-9a9f-9d3ac1c0b4de.parquet")

    assert re.search(r"ducklake-0197\S* is of a DuckLake, whose catalog says", refusal(str(tmp_path)))


def test_what_a_finished_write_leaves_is_harmless(tmp_path: Path) -> None:
    left = "_SUCCESS _metadata _common_metadata _started_7 _committed_7 _committed_vacuum9 .part.crc x=1/_SUCCESS"
    write(
        tmp_path, "a.parquet", "metadata/notes.json", "metadata/photos.metadata.json", "_k=1/b.parquet", *left.split()
    )

    assert [Path(uri).name for uri in list_files(str(tmp_path)).uris] == ["b.parquet", "a.parquet"]
    assert list_files(str(tmp_path)).left_out == ()


def test_files_whose_names_begin_with_an_underscore_are_left_out_and_known(tmp_path: Path) -> None:
    write(tmp_path, "a.parquet", "_x.parquet", "_y/b.parquet", ".hidden.parquet", "_log.xz")

    assert list_files(str(tmp_path)).left_out == ("_x.parquet", "_y/b.parquet")
    assert len(list_files(f"{tmp_path}/_x.parquet").files) == len(list_files(f"{tmp_path}/_*.parquet").files) == 1
    (tmp_path / "a.parquet").unlink()
    assert "_x.parquet begins with _: name it, if it is data" in refusal(str(tmp_path))
