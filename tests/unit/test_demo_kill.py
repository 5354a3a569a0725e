"""The demo claims that a kill changes nothing only if it compared real files and found them equal."""

from pathlib import Path

from producer.local.demo import Comparison, published_digests


def output(folder: Path, content: bytes) -> Path:
    for kind in ("data", "scores"):
        (folder / kind).mkdir(parents=True)
        (folder / kind / "000_00000.parquet").write_bytes(content)
    return folder


def test_equal_files_are_identical_and_a_changed_byte_is_named(tmp_path: Path) -> None:
    killed, same = output(tmp_path / "killed", b"rows"), output(tmp_path / "same", b"rows")
    changed = output(tmp_path / "changed", b"rows")
    (changed / "data/000_00000.parquet").write_bytes(b"Rows")

    equal = Comparison(killed=published_digests(killed), undisturbed=published_digests(same))
    unequal = Comparison(killed=published_digests(killed), undisturbed=published_digests(changed))

    assert equal.is_identical
    assert not unequal.is_identical
    assert unequal.differing == ["data/000_00000.parquet"]


def test_a_missing_file_and_no_files_at_all_are_not_identical(tmp_path: Path) -> None:
    whole, nothing = output(tmp_path / "whole", b"rows"), tmp_path / "nothing"

    assert Comparison(killed=published_digests(whole), undisturbed={}).differing == [
        "data/000_00000.parquet",
        "scores/000_00000.parquet",
    ]
    assert not Comparison(killed=published_digests(nothing), undisturbed=published_digests(nothing)).is_identical
