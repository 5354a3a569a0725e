"""What the dataset card says to those who use the data: how to load them, and which command makes them again."""

import shlex
from collections.abc import Iterator
from typing import Any

from shardsift.fleet.inputs.columns import NAMED_TYPES
from shardsift.fleet.process.wording import shown_bytes
from shardsift.fleet.run.model import SEQUENCE_CLASSIFIER, Model
from shardsift.fleet.run.recipes import recipe_for
from shardsift.fleet.run.scoring import HYPOTHESIS_TEMPLATE, Scoring
from shardsift.fleet.run.spec import RunSpec, disclosed_inputs, disclosed_model
from shardsift.producer.publishing.card_models import HUB_DATASET, longer_fence
from shardsift.producer.scores.distribution import threshold_column, threshold_of

_LABELS_FILE = "labels.txt"
_DEFAULTS = {"dtype": "auto", "text-column": "text", "passages": "head", "hypothesis-template": HYPOTHESIS_TEMPLATE}


def how_to_load(spec: RunSpec) -> str:
    """Snippets that can be pasted. A folder's or bucket's own place is not disclosed, so those are run inside it."""
    found = HUB_DATASET.match(spec.output_uri)
    root = f"{found[0]}/" if found else ""
    folder, rows = ("scores", "scores") if spec.publishes_only_scores else ("data", "kept")
    column = threshold_column(spec)
    has_edge = threshold_of(spec.where, column) is not None
    order = f'\nORDER BY "{column}"' if has_edge else ""
    revision = f', revision="{found[2]}"' if found and found[2] else ""
    dataset = f'"{found[1]}"{revision}' if found else f'"parquet", data_files="{folder}/**"'
    return f"""
## How to load it
{"" if found else f"{chr(10)}In this folder:{chr(10)}"}
```python
from datasets import load_dataset
{rows} = load_dataset({dataset}, split="train", streaming=True)

import pandas
{rows} = pandas.read_parquet("{root}{folder}")

import polars
{rows} = polars.scan_parquet("{root}{folder}/**/*.parquet")
```

```sql
-- DuckDB{": rows that only just passed the filter" if has_edge else ""}
SELECT * FROM '{root}{folder}/**/*.parquet'{order} LIMIT 10;
{_join(spec, root)}```
"""


def _join(spec: RunSpec, root: str) -> str:
    if not spec.row_columns or spec.publishes_only_scores:
        return ""
    shard, row = ('"' + name.replace('"', '""') + '"' for name in spec.row_columns)
    return f"""
-- The rows of the source that are not here, with their scores: the best first
SELECT scores.* FROM '{root}scores/**/*.parquet' AS scores
ANTI JOIN '{root}data/**/*.parquet' AS kept
  ON scores."shard" = kept.{shard} AND scores."row" = kept.{row}
ORDER BY scores."{spec.scorings[0].score_column}" DESC NULLS LAST LIMIT 10;
"""


def how_to_make_it_again(spec: RunSpec) -> str:
    command = _command(spec)
    labels = f"\nThe file `{_LABELS_FILE}` has the labels, one a line.\n" if f"@{_LABELS_FILE}" in command else ""
    fence = longer_fence(command, least=3)
    is_whole = disclosed_inputs(spec) == spec.input_uris and not any(one.model.is_folder for one in spec.scorings)
    paths = "" if is_whole else " (files and folders are named without their paths: fill in yours)"
    return f"\n## How to make it again\n\nWith shardsift{paths}:\n\n{fence}bash\n{command}\n{fence}\n{labels}"


def _command(spec: RunSpec) -> str:
    """With each option that decides rows or files: of a run over stored scores too, which has what a fresh run would.

    Folders are named by their last part, as everywhere in what is published.
    """
    options: list[tuple[str, Any]] = [("input", uri) for uri in disclosed_inputs(spec)]
    options += [*_reading(spec), *_models(spec.scorings)]
    options += [("target-file-size", shown_bytes(spec.target_file_bytes))] if spec.target_file_bytes else []
    options += [*_kept(spec), ("output", "./again")]
    lines = (f"--{name}" + ("" if value is None else f" {shlex.quote(str(value))}") for name, value in options)
    return " \\\n  ".join(("producer run", *lines))


def _kept(spec: RunSpec) -> Iterator[tuple[str, Any]]:
    if spec.best:
        yield "keep-top", spec.best.share
    else:
        yield ("where", spec.where) if spec.where else ("keep-all", None)
    if spec.buckets:
        yield "buckets", len(spec.buckets.edges[0][1]) + 1
    if ranked := spec.best or spec.buckets:
        yield from (("score-column", column) for column in ranked.columns)
        yield from ((name, column) for name, column in (("by", ranked.by), ("within", ranked.within)) if column)


def _place(stored: Model) -> str:
    name = disclosed_model(stored)
    return name if "/" in name else f"./{name}"


def _reading(spec: RunSpec) -> Iterator[tuple[str, Any]]:
    chosen = [column for column in spec.columns if spec.only_columns or column[0] in spec.folder_columns]
    if chosen:
        typed = (f"{name}:{kind}" if kind in NAMED_TYPES else name for name, kind in chosen)
        yield "columns", ",".join(typed)
    if spec.limit_rows is not None:
        yield "limit-rows", spec.limit_rows
    if spec.rows_per_task is not None:
        yield "rows-per-task", spec.rows_per_task
    if spec.max_bad_rows != RunSpec.max_bad_rows:
        yield "max-bad-rows", spec.max_bad_rows
    if spec.row_columns != RunSpec.row_columns:
        yield "row-columns", ",".join(spec.row_columns or ("none",))


def _models(scorings: tuple[Scoring, ...]) -> Iterator[tuple[str, Any]]:
    """The models and how they score. An option that differs between models is set by their recipes, and is left out."""
    for scoring in scorings:
        column, model = scoring.score_column, scoring.model
        name = "" if column == "score" else f"{column.removesuffix('_score')}="
        yield "model", name + (_place(model) if model.is_folder else f"{disclosed_model(model)}@{model.revision}")
    if scorings[0].model.scorer != SEQUENCE_CLASSIFIER:
        yield "scorer", scorings[0].model.scorer
    of_models = [_options(scoring) for scoring in scorings]
    recipes = (recipe_for(scoring.model, has_labels=scoring.zero_shot is not None) for scoring in scorings)
    by_recipe = {name.replace("_", "-") for recipe in recipes if recipe for name in recipe.options}
    for name in dict.fromkeys(name for options in of_models for name in options):
        first, *others = (options[name] for options in of_models if name in options)
        is_said = first is not None and (first != _DEFAULTS.get(name) or name in by_recipe)
        if is_said and all(other == first for other in others):
            yield name, first or None


def _options(scoring: Scoring) -> dict[str, Any]:
    """By their names on the command line. A flag is an empty text."""
    options: dict[str, Any] = {
        "dtype": scoring.dtype,
        "text-column": scoring.text_template or ",".join(scoring.text_columns),
        "text-pair-column": scoring.text_pair_column,
        "max-tokens": scoring.max_tokens,
        "passages": scoring.passages + (":mean" if scoring.pool == "mean" else ""),
        "function-to-apply": scoring.function_to_apply,
    }
    if labels := scoring.zero_shot:
        in_file = any("," in label or label.startswith("@") for label in labels.labels)
        options |= {
            "labels": f"@{_LABELS_FILE}" if in_file else ",".join(labels.labels),
            "hypothesis-template": labels.hypothesis_template,
            "multi-label": "" if labels.multi_label else None,
        }
    return options
