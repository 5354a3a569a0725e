"""The demo claims that a kill changes nothing only if it compared real files and found them equal."""

from pathlib import Path

from producer.local.demo import differing_files, published_digests


def digests(folder: Path, content: bytes) -> dict[str, str]:
    for kind in ("data", "scores"):
        (folder / kind).mkdir(parents=True)
        (folder / kind / "000_00000.parquet").write_bytes(content)
    return published_digests(folder)


def test_a_changed_byte_a_missing_file_and_no_files_at_all_are_named(tmp_path: Path) -> None:
    killed, same = digests(tmp_path / "killed", b"rows"), digests(tmp_path / "same", b"rows")
    (tmp_path / "same/data/000_00000.parquet").write_bytes(b"Rows")
    changed = published_digests(tmp_path / "same")

    assert differing_files(killed, same) == []
    assert differing_files(killed, changed) == ["data/000_00000.parquet"]
    assert differing_files(killed, {}) == ["data/000_00000.parquet", "scores/000_00000.parquet"]
    assert differing_files({}, {}) == ["nothing was published"]
