"""Inputs of files and folders: which shards they have, in which order, and whether they are still the same."""

import hashlib
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from shardsift.fleet.errors import ShardError, UsageError
from shardsift.fleet.inputs.open_input import open_input
from shardsift.producer.planning.inputs import count_rows, limited, list_input
from support.input_shards import names, shard
from support.line_files import write_file, write_json_lines


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Shards of 10, 20 and 30 rows, among other files that Spark and people leave and links that are no shards."""
    folder = tmp_path / "input"
    for name, rows in [("b", 20), ("a", 10), ("deep/er/c", 30)]:
        shard(folder / f"{name}.parquet", rows)
    for name in (".hidden", "_temporary/0/part", "deep/.cache/x", "_metadata"):
        shard(folder / f"{name}.parquet", 1)
    (folder / "notes.txt").write_text("not a shard")
    (folder / "_SUCCESS").write_text("")
    shard(tmp_path / "linked/d.parquet", 5)
    (folder / "more").symlink_to(tmp_path / "linked")
    (folder / ".gone.parquet").symlink_to(folder / "nowhere")
    return folder


def test_a_folders_shards_come_in_the_order_of_their_names_and_know_where_they_are(folder: Path) -> None:
    assert names(str(folder)) == ["a", "b", "deep/er/c"]
    first = list_input(str(folder)).shards[0]
    assert first.uri == f"file://{folder}/a.parquet"
    assert first.size_bytes == (folder / "a.parquet").stat().st_size
    assert first.row_limit is None


@pytest.mark.parametrize(
    ("uri", "found"),
    [
        ("deep/er/c.parquet", ["c"]),
        ("notes.txt", ["notes.txt"]),
        ("_temporary/0", ["part"]),
        ("*.parquet", ["a", "b"]),
        ("_*.parquet", ["_metadata"]),
        ("[ab].parquet", ["a", "b"]),
        ("deep/.cache/*.parquet", ["x"]),
        ("**/_temporary/**/*.parquet", ["_temporary/0/part"]),
    ],
)
def test_a_file_a_folder_and_a_glob_take_what_they_say_and_names_start_at_the_first_wildcard(
    folder: Path, uri: str, found: list[str]
) -> None:
    assert names(f"{folder}/{uri}") == found


@pytest.mark.parametrize("ending", [".jsonl", ".ndjson", ".json", ".csv", ".jsonl.gz", ".csv.zst"])
def test_files_of_lines_are_shards_named_without_their_ending(tmp_path: Path, ending: str) -> None:
    for name in ("a", "deep/b", ".hidden"):
        write_file(tmp_path / f"{name}{ending}", b"text\n")

    assert names(str(tmp_path)) == ["a", "deep/b"]
    assert names(f"{tmp_path}/*") == ["a"]
    assert names(f"{tmp_path}/deep/b{ending}") == ["b"]


def test_files_of_several_formats_are_reported_and_not_mixed(folder: Path) -> None:
    for name in ("c.jsonl.gz", "d.jsonl"):
        write_file(folder / name, b"")

    for place, shards in ((f"{folder}", 3), (f"{folder}/*", 2)):
        with pytest.raises(UsageError) as refusal:
            list_input(place)
        assert str(refusal.value) == (
            f"{place} has files of several formats: {shards} Parquet, 2 JSON Lines. Choose one with a glob, like "
            f"--input '{folder}/**/*.parquet', or name each with one of its own."
        )
    assert names(f"{folder}/**/*.parquet") == ["a", "b", "deep/er/c"]
    assert names(f"{folder}/*.jsonl") == ["d"]


@pytest.mark.parametrize("ending", [".parquet", ".json.gz"])
def test_files_called_json_beside_others_describe_them(tmp_path: Path, ending: str) -> None:
    write_file(tmp_path / f"a{ending}", b"")
    write_file(tmp_path / "dataset_info.json", b"{}")

    assert names(str(tmp_path)) == ["a"]


@pytest.mark.parametrize("uri", ["input", "input/*", "input/**"])
def test_files_of_unknown_endings_are_left_out_and_known(folder: Path, uri: str) -> None:
    beside = ("README", "LICENSE.txt", "a.md", "info.json", "a.sha256")
    for name in ("posts.jsonl.xz", ".hidden.xz", "_x/part.xz", *beside):
        write_file(folder / name, b"")

    marked = () if uri == "input/*" else ("_temporary/0/part.parquet",)
    found = list_input(f"{folder.parent}/{uri}")
    assert found.left_out == ("_metadata.parquet", *marked, "more", "notes.txt", "posts.jsonl.xz")
    assert list_input(f"{folder}/*.parquet", str(folder / "deep/er/c.parquet")).left_out == ("_metadata.parquet",)


def test_the_same_name_in_two_formats_is_reported(tmp_path: Path) -> None:
    write_file(tmp_path / "a.jsonl", b"")
    write_file(tmp_path / "a.jsonl.gz", b"")

    with pytest.raises(UsageError, match=r"Two files would become shard a: .*Rename one\.$"):
        list_input(str(tmp_path))
    with pytest.raises(UsageError, match=r"Rename one, leave one out, or pass their common parent folder"):
        list_input(f"{tmp_path}/*.gz", f"{tmp_path}/*.jsonl")
    assert names(f"{tmp_path}/*.jsonl.gz") == ["a"]


@pytest.mark.parametrize("name", ["a.txt", "a.jsonl.xz", "a.tsv", "RC_2019-04.zst"])
def test_another_ending_is_reported_with_those_that_are_known(tmp_path: Path, name: str) -> None:
    write_file(tmp_path / name, b'{"text": "a"}')

    endings = r"\.parquet, \.jsonl, \.ndjson, \.json or \.csv; each but \.parquet also with \.gz or \.zst"
    with pytest.raises(UsageError, match=rf"No input files at .* end in {endings}"):
        list_input(str(tmp_path))
    with (
        pytest.raises(ShardError, match=rf"not a readable Parquet file.* end in {endings}"),
        open_input(list_input(str(tmp_path / name)).shards[0].uri),
    ):
        pass


def test_a_link_to_a_file_is_a_shard_under_its_own_name(folder: Path, tmp_path: Path) -> None:
    target = shard(tmp_path / "elsewhere/d.parquet", 10)
    (folder / "z.parquet").symlink_to(target)

    shards = {shard.name: shard for shard in list_input(str(folder)).shards}

    assert list(shards) == ["a", "b", "deep/er/c", "z"]
    assert shards["z"].size_bytes == target.stat().st_size
    assert shards["z"].uri == f"file://{folder}/z.parquet"
    assert count_rows(tuple(shards.values())) == 70


@pytest.mark.parametrize("link", [Path.symlink_to, Path.hardlink_to])
def test_two_names_of_one_file_are_reported(folder: Path, link: Callable[[Path, Path], None]) -> None:
    link(folder / "z.parquet", folder / "a.parquet")

    for inputs in ([str(folder)], [f"{folder}/a*", f"{folder}/z*"]):
        with pytest.raises(UsageError, match=rf"{folder}/a.parquet is named twice: .* as {folder}/z.parquet by "):
            list_input(*inputs)
    shutil.copy(folder / "a.parquet", folder / "copy.parquet")
    (folder / "z.parquet").unlink()
    assert names(str(folder)) == ["a", "b", "copy", "deep/er/c"]


def test_a_link_to_nothing_is_reported(folder: Path) -> None:
    (folder / "z.parquet").symlink_to("../annex/object")

    with pytest.raises(UsageError, match="No such file or directory .*z.parquet"):
        list_input(str(folder))


def test_the_shards_of_all_are_one_run(folder: Path) -> None:
    write_json_lines(folder / "d.jsonl", [{"text": "a"}])
    uris = (f"{folder}/deep", f"{folder}/b.parquet", f"{folder}/d.jsonl")

    source = list_input(*uris)

    assert [shard.name for shard in source.shards] == ["er/c", "b", "d"]
    assert source.uris == uris
    assert source.revision not in {list_input(uri).revision for uri in uris}


def test_a_file_that_two_inputs_name_is_reported_even_if_its_shards_would_have_two_names(folder: Path) -> None:
    first, second = str(folder), f"{folder}/deep"

    with pytest.raises(UsageError) as told:
        list_input(first, second)

    assert str(told.value) == (
        f"The file {folder}/deep/er/c.parquet is named twice: by --input {first} and by --input {second}. "
        "Its rows would be there twice. Leave one of the two out."
    )
    for other in (f"{folder}/deep/../a.parquet", f"file://{folder}/../input//a.parquet"):
        with pytest.raises(UsageError, match="/a.parquet is named twice: by --input .* as .*/a.parquet by --input "):
            list_input(str(folder), other)


@pytest.mark.parametrize("path", ["absent", "absent/*.parquet", "empty", "empty/*.parquet"])
def test_an_input_without_shards_is_reported(tmp_path: Path, path: str) -> None:
    (tmp_path / "empty").mkdir()

    with pytest.raises(UsageError, match=f"{tmp_path}/{path.split('/')[0]}"):
        list_input(f"{tmp_path}/{path}")


@pytest.mark.parametrize(
    ("uri", "says"),
    [
        ("memory://nowhere/a.parquet", "the file does not exist"),
        *((uri, f"{uri} cannot be read: .+") for uri in ("nosuch://bucket/x", "dir://x")),
    ],
)
def test_what_a_protocol_does_not_have_or_that_is_none_is_reported(uri: str, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        list_input(uri)


def test_a_file_more_or_rewritten_or_renamed_is_another_revision_and_a_touched_or_moved_one_not(
    folder: Path,
) -> None:
    before = list_input(str(folder)).revision
    os.utime(folder / "a.parquet", (1, 1))
    moved = folder.rename(folder.parent / "moved")
    assert list_input(str(moved)).revision == before

    revisions = {before}
    for change in (
        lambda: pq.write_table(pa.table({"text": [f"TEXT {row}" for row in range(10)]}), moved / "a.parquet"),
        lambda: shard(moved / "d.parquet", 1),
        lambda: (moved / "d.parquet").rename(moved / "z.parquet"),
    ):
        change()
        revisions.add(list_input(str(moved)).revision)
    assert len(revisions) == 4


@pytest.mark.parametrize("name", ["a.jsonl", "a.csv", "a.json.gz", "broken.parquet"])
def test_a_file_of_lines_is_known_by_all_its_bytes_and_a_broken_one_as_unreadable(tmp_path: Path, name: str) -> None:
    file = write_file(tmp_path / name, b"a" * 100_000)

    (found,) = list_input(str(file)).shards

    known = f"sha256:{hashlib.sha256(file.read_bytes()).hexdigest()}"
    assert found.identity == known if name != "broken.parquet" else found.identity.startswith("unreadable:")


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        (None, [("a", None), ("b", None), ("deep/er/c", None)]),
        (10, [("a", None)]),
        (11, [("a", None), ("b", 1)]),
        (1000, [("a", None), ("b", None), ("deep/er/c", None)]),
    ],
)
def test_a_limit_takes_the_first_rows(folder: Path, rows: int | None, expected: list[tuple[str, int | None]]) -> None:
    source = limited(list_input(str(folder)), rows)

    assert [(shard.name, shard.row_limit) for shard in source.shards] == expected
    assert count_rows(source.shards) == min(rows or 60, 60)
