"""Parts of a card that differ between datasets of kept rows and of scores alone, and code to load the dataset."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from shardsift.fleet.run.spec import RunSpec
from shardsift.producer.publishing.card_text import HUB_DATASET
from shardsift.producer.scores.distribution import filter_threshold, threshold_column


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


def how_to_load(spec: RunSpec, *, folder: str, called: str, also: str = "") -> str:
    """Write code to paste, ending with the SQL `also`. For a folder or bucket, the code runs inside it."""
    found = HUB_DATASET.match(spec.output_uri)
    column = threshold_column(spec)
    has_edge = filter_threshold(spec.where, column) is not None
    order = f'\nORDER BY "{column}"' if has_edge else ""
    revision = f', revision="{found[2]}"' if found and found[2] else ""
    dataset = f'"{found[1]}"{revision}' if found else f'"parquet", data_files="{folder}/**"'
    path = f"{root_of(spec)}{folder}"
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


def root_of(spec: RunSpec) -> str:
    found = HUB_DATASET.match(spec.output_uri)
    return f"{found[0]}/" if found else ""
