"""The parts of a card that depend on whether the dataset has kept rows or only scores, such as code to load it."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from shardsift.fleet.process.wording import counted, first_of
from shardsift.fleet.run.output_columns import ERROR, TEXT_DIGEST
from shardsift.fleet.run.receipt import Receipt
from shardsift.fleet.run.spec import BestRows, RunSpec
from shardsift.producer.publishing.card_markdown import HUB_DATASET, cell, code, percent_of, source_name
from shardsift.producer.publishing.card_models import kinds_of_models
from shardsift.producer.scores.distribution import filter_threshold, threshold_column

_NAMED_SUBSETS = 3
_DIGEST = "BLAKE2b of the text in 16 bytes, by which equal texts are found."
_NEAR_THE_EDGE = (
    "A row close to the edge of the filter could as well be on the other side: models err, and scores differ "
    "slightly between number formats and devices. Read some such rows before you choose a threshold."
)


@dataclass(frozen=True, kw_only=True)
class Contents:
    rows: int  # in the default subset
    subsets: Mapping[str, str]  # name → folder, the default first
    done: str  # for the title: filtered or scored
    summary: str
    how_to_load: str
    files: str
    row_columns: tuple[str, str]  # the columns that say where a row is from
    other_columns: Sequence[str] = ()  # lines about columns that no model adds
    filter: str = ""  # a line of the table; likewise `kept`
    kept: str = ""
    limits: Sequence[str] = ()
    source_rows: str  # the part of the source that the licence covers


def kept_rows(spec: RunSpec, rows: Mapping[str, int], missing: str) -> Contents:
    kept, dropped = (
        f"{rows[fate]:,}{percent_of(rows[fate], rows['rows_in'])}" for fate in ("rows_kept", "rows_dropped")
    )
    joined, but = "", ", but for those of the drop lists" if spec.drop_lists else ""
    if spec.row_columns != RunSpec.row_columns:
        joined = f", as {' and '.join(map(cell, spec.row_columns))} of the kept rows do"
    return Contents(
        rows=rows["rows_kept"],
        subsets={"default": "data", "scores": "scores"},
        done="filtered" if spec.where or spec.drop_lists else "scored",
        summary=_summary(spec, rows, missing),
        how_to_load=_how_to_load(spec, folder="data", called="kept", also=_rows_not_here(spec)),
        files="The subset `scores` has a line for *every* row that was read, kept or not, so that another threshold needs no "
        f"new scoring: `shard` and `row` say which row it is{joined}.",
        row_columns=spec.row_columns,
        other_columns=[f"- `{TEXT_DIGEST.name}`, in `scores` alone: {_DIGEST}"] if spec.unique else [],
        filter=f"| Filter | {cell(spec.where) if spec.where else 'none: every scored row is kept'}{but} |\n",
        kept=f"| Kept | {kept} |\n| Dropped | {dropped} |\n{_duplicates(spec, rows)}",
        limits=[_NEAR_THE_EDGE] if spec.where else [],
        source_rows="rows",
    )


def scores_alone(spec: RunSpec, rows: Mapping[str, int], missing: str) -> Contents:
    read = ("the first " if spec.limit_rows else "") + counted(rows["rows_in"], "row")
    return Contents(
        rows=rows["rows_in"],
        subsets={"scores": "scores"},
        done="scored",
        summary=f"The scores of {read} of {source_name(spec)}, by {kinds_of_models(spec)}{missing}.\n"
        "The rows themselves are in the source, where `shard` and `row` say.",
        how_to_load=_how_to_load(spec, folder="scores", called="scores"),
        files="There is a line for *every* row that was read.",
        row_columns=RunSpec.row_columns,
        other_columns=[f"- `{ERROR.name}`: why a row has no score."],
        source_rows="scored rows",
    )


def subsets_of(spec: RunSpec, receipts: Iterable[Receipt]) -> list[str]:
    """Return the crawls or --subset names with a shard in `receipts`, because a subset without files cannot be loaded."""
    folders = {receipt.shard.partition("/")[0] for receipt in receipts}
    return sorted(folders.intersection(spec.subset_names))


def with_subsets(contents: Contents, names: Sequence[str]) -> Contents:
    """Add a subset for each name: the files in the folder of that name inside the folder of the default subset."""
    if not names:
        return contents
    folder = next(iter(contents.subsets.values()))
    named = first_of([*map(code, names)], _NAMED_SUBSETS)
    return replace(
        contents,
        subsets={**contents.subsets, **{name: f"{folder}/{name}" for name in names}},
        files=f"{contents.files} Each crawl or source is a subset, too: {named}.",
    )


def _summary(spec: RunSpec, rows: Mapping[str, int], missing: str) -> str:
    kept, rows_in = rows["rows_kept"], rows["rows_in"]
    read = ("the first " if spec.limit_rows else "") + counted(rows_in, "row")
    why = f": {_best(spec.best)}" if spec.best else f": those for which {code(spec.where)}" if spec.where else ""
    here = "the rows that pass the filter are here" if spec.where else "those that could be scored are here"
    here += ", but for those of the drop lists" if spec.drop_lists else ""
    here += " (of equal texts, the first)" if spec.unique else ""
    names = [code(name) for name, _ in spec.columns]
    columns = f"these of its columns: {', '.join(names)}" if spec.only_columns else "all its columns"
    return f"""{kept:,} of {read}{percent_of(kept, rows_in)} of {source_name(spec)}{why}. Every row was scored with \
{kinds_of_models(spec)}{missing};
{here}, in the source's order and with {columns}."""


def _duplicates(spec: RunSpec, rows: Mapping[str, int]) -> str:
    if not spec.unique:
        return ""
    return f"| Duplicates | {rows['duplicates']:,} of the dropped rows, whose text an earlier row has |\n"


def _best(best: BestRows) -> str:
    """Describe the best rows, for example `those with the highest score, which have 10% of all token_count`."""
    scores = ("maximum of " if len(best.columns) > 1 else "") + ", ".join(map(code, best.columns))
    within = f", within each {code(best.within)} that is not null" if best.within else ""
    of = f"all {code(best.by)}" if best.by else "the scored rows"
    return f"those with the highest {scores}, which {'have' if best.by else 'are'} {best.share} of {of}{within}"


def _rows_not_here(spec: RunSpec) -> str:
    root = _root_of(spec)
    shard, row = ('"' + name.replace('"', '""') + '"' for name in spec.row_columns)
    return f"""
-- The rows of the source that are not here, with their scores: the best first
SELECT scores.* FROM '{root}scores/**/*.parquet' AS scores
ANTI JOIN '{root}data/**/*.parquet' AS kept
  ON scores."shard" = kept.{shard} AND scores."row" = kept.{row}
ORDER BY scores."{spec.scorings[0].score_column}" DESC NULLS LAST LIMIT 10;
{_duplicates_query(root, shard, row) if spec.unique else ""}"""


def _duplicates_query(root: str, shard: str, row: str) -> str:
    digest = TEXT_DIGEST.name
    return f"""
-- The rows with the text of a kept row: the duplicates, and rows that the filter drops by other columns
WITH kept AS (
  SELECT scores.* FROM '{root}scores/**/*.parquet' AS scores
  SEMI JOIN '{root}data/**/*.parquet' AS data ON scores."shard" = data.{shard} AND scores."row" = data.{row}
)
SELECT again."shard", again."row", kept."shard" AS kept_shard, kept."row" AS kept_row
FROM '{root}scores/**/*.parquet' AS again JOIN kept USING ({digest})
WHERE (again."shard", again."row") <> (kept."shard", kept."row") LIMIT 10;
"""


def _how_to_load(spec: RunSpec, *, folder: str, called: str, also: str = "") -> str:
    """Write example code that loads the dataset's `folder` into a variable `called`. `also` is more SQL for the example.

    If the output is not on the Hub, paths in the code are relative to the output.
    """
    found = HUB_DATASET.match(spec.output_uri)
    column = threshold_column(spec)
    has_edge = filter_threshold(spec.where, column) is not None
    order = f'\nORDER BY "{column}"' if has_edge else ""
    revision = f', revision="{found[2]}"' if found and found[2] else ""
    dataset = f'"{found[1]}"{revision}' if found else f'"parquet", data_files="{folder}/**"'
    path = f"{_root_of(spec)}{folder}"
    return f"""
## How to load it
{"" if found else f"{chr(10)}In this folder:{chr(10)}"}
```python
from datasets import load_dataset
{called} = load_dataset({dataset}, split="train", streaming=True)

import pandas
{called} = pandas.read_parquet("{path}")

import polars
{called} = polars.scan_parquet("{path}/**/*.parquet")
```

```sql
-- DuckDB{": rows that only just passed the filter" if has_edge else ""}
SELECT * FROM '{path}/**/*.parquet'{order} LIMIT 10;
{also}```
"""


def _root_of(spec: RunSpec) -> str:
    found = HUB_DATASET.match(spec.output_uri)
    return f"{found[0]}/" if found else ""
