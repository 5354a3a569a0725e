"""The folder of a storm: its inputs and its model. Checks an output against its input, row by row."""

import json
import shutil
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from shardsift.producer.local.demo_data import write_shards

# shard → what one of its texts does to its worker
_POISON = {"000_90000": "kill", "000_90001": "segfault", "000_90002": "runtime error"}
_FILE_SIZE = "100kB"  # of two or three shards


@dataclass(frozen=True, kw_only=True)
class Variant:
    """A kind of run: its input, its options and its filter. Each run has its own output."""

    name: str
    shards: Path
    min_score: float
    target_file_size: str = "none"  # else the files of some shards are merged
    poison: frozenset[str] = frozenset()

    @property
    def shard_names(self) -> set[str]:
        return {path.stem for path in self.shards.glob("*.parquet")}


@dataclass(frozen=True, kw_only=True)
class Place:
    folder: Path
    model: Path
    variants: tuple[Variant, ...]
    poisoned: Variant


def prepare(folder: Path, *, shards: int, rows: int, seed: int) -> Place:
    """Write Parquet files, in which all texts differ, and a folder that looks like a model."""
    folder.mkdir(parents=True, exist_ok=True)
    clean = folder / "shards"
    _write_shards(clean, shards=shards, rows=rows, seed=seed)
    poisoned = folder / "poisoned"
    shutil.copytree(clean, poisoned)
    template = sorted(clean.glob("*.parquet"))[0]
    for name, action in _POISON.items():
        _write_poison(template, poisoned / f"{name}.parquet", action)
    return Place(
        folder=folder,
        model=_model(folder / "model"),
        variants=(
            Variant(name="min-1.5", shards=clean, min_score=1.5, target_file_size=_FILE_SIZE),
            Variant(name="min-3.0", shards=clean, min_score=3.0),
            Variant(name="min-4.5", shards=clean, min_score=4.5),
        ),
        poisoned=Variant(name="poisoned", shards=poisoned, min_score=3.0, poison=frozenset(_POISON)),
    )


def check_each_row_is_there_once(variant: Variant, output: Path) -> None:
    """Raise AssertionError unless the output has a score for each row, and each row that the filter keeps."""
    rows_in, kept_ids = 0, []
    all_scores = pq.read_table(output / "scores")
    for shard in sorted(variant.shard_names):
        rows = pq.read_table(variant.shards / f"{shard}.parquet")
        scores = all_scores.filter(pc.equal(all_scores["shard"], shard))
        assert scores["row"].to_pylist() == list(range(len(rows)))
        kept = rows.filter(pc.greater_equal(scores["score"], variant.min_score))
        kept_ids += kept["id"].to_pylist()
        rows_in += len(rows)
    files = sorted((output / "data").glob("*.parquet"))
    assert [row for file in files for row in pq.read_table(file)["id"].to_pylist()] == kept_ids
    for found in (files, [*(output / "scores").glob("*.parquet")]):
        assert (len(found) < len(variant.shard_names)) == (variant.target_file_size != "none")
    assert len(all_scores) == rows_in
    assert 0 < len(kept_ids) < rows_in, "a filter that keeps all or nothing shows little"


def _write_shards(folder: Path, *, shards: int, rows: int, seed: int) -> None:
    write_shards(folder, shards=shards, rows=rows, seed=seed)
    for path in folder.glob("*.parquet"):
        table = pq.read_table(path)
        texts = [f"{path.stem} {row}: {text}" for row, text in enumerate(table["text"].to_pylist())]
        pq.write_table(_with_texts(table, texts), path)


def _write_poison(template: Path, path: Path, action: str) -> None:
    """Write a shard with a poison text in its middle, so that some windows are scored first."""
    table = pq.read_table(template)
    texts = [f"{path.stem} {row}" for row in range(len(table))]
    texts[len(texts) // 2] = f"POISON:{action}|{path.stem}"
    pq.write_table(_with_texts(table, texts), path)


def _with_texts(table: pa.Table, texts: list[str]) -> pa.Table:
    return table.set_column(table.schema.get_field_index("text"), "text", pa.array(texts, pa.string()))


def _model(folder: Path) -> Path:
    """Write the files of a model that the light side reads. The stand-in scorer needs no weights."""
    folder.mkdir()
    config = {"architectures": ["BertForSequenceClassification"], "id2label": {"0": "LABEL_0"}}
    (folder / "config.json").write_text(json.dumps(config))
    return folder
