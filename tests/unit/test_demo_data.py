"""The demo's texts depend only on the seed and separate training from scoring, and its claim is checked on real files."""

from pathlib import Path

import pyarrow.parquet as pq

from shardsift.producer.local.demo import differing_files, published_digests
from shardsift.producer.local.demo_data import (
    PARAGRAPHS,
    Part,
    write_shards,
)


def test_a_seed_gives_the_same_bytes_however_many_shards_and_another_seed_others(tmp_path: Path) -> None:
    first, again, other = (
        [path.read_bytes() for path in write_shards(tmp_path / name, shards=2, rows=20, seed=seed)]
        for name, seed in (("first", 1), ("again", 1), ("other", 2))
    )
    (alone,) = write_shards(tmp_path / "alone", shards=1, rows=20, seed=1)

    assert first == again
    assert first[0] == alone.read_bytes()
    assert not set(first) & set(other)


def test_training_and_shards_share_no_paragraph() -> None:
    table = pq.read_table(PARAGRAPHS)
    paragraphs = [" ".join(text.split()).casefold() for text in table["text"].to_pylist()]

    assert set(table["part"].to_pylist()) == set(Part)
    assert len(set(paragraphs)) == len(paragraphs) > 4000


def digests(folder: Path, content: bytes) -> dict[str, str]:
    for kind in ("data", "scores"):
        (folder / kind).mkdir(parents=True)
        (folder / kind / "000_00000.parquet").write_bytes(content)
    return published_digests(folder)


def test_a_changed_byte_a_missing_file_and_no_files_at_all_are_named(tmp_path: Path) -> None:
    """The demo claims that a kill changes nothing only if it compared real files and found them equal."""
    killed, same = digests(tmp_path / "killed", b"rows"), digests(tmp_path / "same", b"rows")
    (tmp_path / "same/data/000_00000.parquet").write_bytes(b"Rows")
    changed = published_digests(tmp_path / "same")

    assert differing_files(killed, same) == []
    assert differing_files(killed, changed) == ["data/000_00000.parquet"]
    assert differing_files(killed, {}) == ["data/000_00000.parquet", "scores/000_00000.parquet"]
    assert differing_files({}, {}) == ["nothing was published"]
