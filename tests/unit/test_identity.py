"""The identity of a file, from the listing of each kind of file system."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from shardsift.fleet.errors import ShardError
from shardsift.fleet.inputs.identity import are_of_other_bytes, identity_now, identity_of, unchanged
from support.records import a_shard


def a_file(path: Path, columns: list[str]) -> Path:
    pq.write_table(pa.table({name: ["a"] for name in columns}), path)
    return path


@pytest.mark.parametrize(
    ("protocol", "info", "identity"),
    [
        ("hf", {"lfs": SimpleNamespace(sha256="ab12"), "blob_id": "c3", "xet_hash": "d4"}, "sha256:ab12"),
        ("hf", {"lfs": None, "blob_id": "c3"}, "git:c3"),
        ("hf", {"xet_hash": "d4"}, "xet:d4"),
        (("s3", "s3a"), {"ETag": '"9b2cf535f27731c9-3"'}, "etag:9b2cf535f27731c9-3"),
        (("gs", "gcs"), {"md5Hash": "XrY7u+Ae7tCTyyK7j1rNww==", "etag": "CJ"}, "etag:XrY7u+Ae7tCTyyK7j1rNww=="),
    ],
)
def test_a_service_that_knows_the_content_is_believed(protocol: object, info: dict[str, Any], identity: str) -> None:
    assert identity_of(SimpleNamespace(protocol=protocol), {"name": "x", "size": 1, **info}) == identity


@pytest.mark.parametrize(
    ("protocol", "info"),
    [
        (("file", "local"), {"mtime": 1.0}),
        (("s3", "s3a"), {"ETag": 'W/"weak"'}),
    ],
)
def test_other_files_are_known_by_size_and_footer(tmp_path: Path, protocol: object, info: dict[str, Any]) -> None:
    file = a_file(tmp_path / "a.parquet", ["text"])
    filesystem = SimpleNamespace(protocol=protocol, open=fsspec.filesystem("file").open)

    identity = identity_of(filesystem, {"name": str(file), **info})

    assert identity == identity_now(str(file))[0]
    assert identity.startswith(f"parquet:{file.stat().st_size}:")


def test_a_footer_longer_than_what_is_read_at_once_counts_whole(tmp_path: Path) -> None:
    columns = [f"column {number} {'x' * 500}" for number in range(300)]
    one = a_file(tmp_path / "one.parquet", columns)
    other = a_file(tmp_path / "other.parquet", ["Column" + columns[0].removeprefix("column"), *columns[1:]])

    assert one.stat().st_size == other.stat().st_size > 200_000
    assert identity_now(str(one))[0] != identity_now(str(other))[0]


def test_a_bucket_is_looked_at_afresh() -> None:
    files = fsspec.filesystem("memory")
    files.pipe_file("/identity/a", b"one")
    before = identity_now("memory://identity/a")
    files.pipe_file("/identity/a", b"two")

    assert identity_now("memory://identity/a") != before
    files.rm("/identity", recursive=True)


def test_a_failure_while_a_file_is_read_is_reported_as_its_change_if_it_changed(tmp_path: Path) -> None:
    file = a_file(tmp_path / "a.parquet", ["text"])
    shard = a_shard(uri=str(file), identity=identity_now(str(file))[0])

    def failing_read(columns: list[str]) -> None:
        with unchanged(shard):
            a_file(file, columns)
            raise ShardError("decoding failed")

    with pytest.raises(ShardError, match="decoding failed"):
        failing_read(["text"])
    with pytest.raises(ShardError, match="the input changed since it was enqueued"):
        failing_read(["text", "more"])


@pytest.mark.parametrize(
    ("one", "other", "differ"),
    [
        ("sha256:ab", "sha256:ab", False),
        ("sha256:ab", "sha256:cd", True),
        ("parquet:10:ab", "parquet:11:ab", True),
        ("sha256:ab", "parquet:10:ab", False),
    ],
)
def test_identities_of_different_kinds_do_not_prove_other_bytes(one: str, other: str, differ: bool) -> None:
    assert are_of_other_bytes(one, other) is differ
