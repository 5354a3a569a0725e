"""The folder of a storm: its inputs and its model. Checks an output against its input, row by row."""

import json
import shutil
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from hubserver import HubServer
from shardsift.producer.local.demo_data import write_shards
from support.outputs import manifest_lines

# shard → what one of its texts does to its worker
_POISON = {"000_90000": "kill", "000_90001": "segfault", "000_90002": "runtime error"}
_FILE_SIZE = "100kB"  # holds two or three shards
UNDISTURBED = "undisturbed"  # name of the folder of the fleet without faults
BASE_TITLE = "Publish run of a part"  # of the commit with the dataset that a run extends


@dataclass(frozen=True, kw_only=True)
class Variant:
    """A kind of run: its input, its options and its filter. Each run has its own output."""

    name: str
    shards: Path
    min_score: float
    target_file_size: str = "none"  # otherwise files of several shards are merged
    poison: frozenset[str] = frozenset()
    base: Path | None = None  # a dataset of some of the shards, which runs of this variant extend

    @property
    def shard_names(self) -> set[str]:
        return {path.stem for path in self.shards.glob("*.parquet")}

    @property
    def own_shards(self) -> set[str]:
        """The shards that a run of this variant scores: those that its base lacks."""
        there = {str(line["shard"]) for line in manifest_lines(self.base)} if self.base else set()
        return self.shard_names - there


@dataclass(frozen=True, kw_only=True)
class Place:
    folder: Path
    model: Path
    variants: tuple[Variant, ...]
    parts: tuple[Variant, ...]  # the variants over some of the shards
    extensions: tuple[Variant, ...]  # variants that extend the datasets of the parts
    poisoned: Variant


def prepare(folder: Path, *, shards: int, rows: int, seed: int) -> Place:
    """Write the inputs, in which all texts differ, and a folder that looks like a model."""
    folder.mkdir(parents=True, exist_ok=True)
    clean = folder / "shards"
    _write_shards(clean, shards=shards, rows=rows, seed=seed)
    poisoned = folder / "poisoned"
    shutil.copytree(clean, poisoned)
    template = sorted(clean.glob("*.parquet"))[0]
    for name, action in _POISON.items():
        _write_poison(template, poisoned / f"{name}.parquet", action)
    part, undisturbed = folder / "part", folder / UNDISTURBED / "out"
    part.mkdir()
    for path in sorted(clean.glob("*.parquet"))[::2]:
        shutil.copy(path, part)
    variants = (
        Variant(name="min-1.5", shards=clean, min_score=1.5, target_file_size=_FILE_SIZE),
        Variant(name="min-3.0", shards=clean, min_score=3.0),
        Variant(name="min-4.5", shards=clean, min_score=4.5),
    )
    return Place(
        folder=folder,
        model=_model(folder / "model"),
        variants=variants,
        parts=tuple(replace(one, name=f"{one.name}-part", shards=part) for one in variants),
        extensions=tuple(
            replace(one, name=f"{one.name}-extended", base=undisturbed / f"{one.name}-part") for one in variants
        ),
        poisoned=Variant(name="poisoned", shards=poisoned, min_score=3.0, poison=frozenset(_POISON)),
    )


def put_base(variant: Variant, output: Path) -> None:
    """Copy the dataset that a run of this variant extends into its output, as if it had been published there."""
    if variant.base:
        shutil.copytree(variant.base, output)


def put_base_on_hub(variant: Variant, hub: HubServer, hub_repo: str) -> None:
    if variant.base:
        with TemporaryDirectory() as folder:
            shutil.copytree(variant.base, folder, ignore=shutil.ignore_patterns(".shardsift"), dirs_exist_ok=True)
            hub.add_folder(hub_repo, Path(folder), message=BASE_TITLE)


def check_each_row_is_there_once(variant: Variant, output: Path) -> None:
    """Assert that the output has each row's score, and each row that the filter keeps, exactly once.

    Also asserts that the rows of each file are in the order of the input.
    """
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
    places = {row_id: place for place, row_id in enumerate(kept_ids)}
    found_rows = [[places[row_id] for row_id in pq.read_table(file)["id"].to_pylist()] for file in files]
    assert all(rows == sorted(rows) for rows in found_rows)
    assert sorted(chain.from_iterable(found_rows)) == list(range(len(kept_ids)))
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
    """Write the files of a model that the producer reads. The stand-in scorer needs no weights."""
    folder.mkdir()
    config = {"architectures": ["BertForSequenceClassification"], "id2label": {"0": "LABEL_0"}}
    (folder / "config.json").write_text(json.dumps(config))
    return folder
