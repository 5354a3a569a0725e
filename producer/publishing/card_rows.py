"""The contents of a card for kept rows: how they were chosen, and how to join them with the scores of all rows."""

from collections.abc import Mapping

from shardsift.fleet.process.wording import counted
from shardsift.fleet.run.spec import BestRows, RunSpec
from shardsift.producer.publishing.card_contents import Contents, how_to_load, root_of
from shardsift.producer.publishing.card_models import kinds_of_models
from shardsift.producer.publishing.card_text import cell, code, percent_of, source_name

_NEAR_THE_EDGE = (
    "A row close to the edge of the filter could as well be on the other side: models err, and scores differ "
    "slightly between number formats and devices. Read some such rows before you choose a threshold."
)


def kept_rows(spec: RunSpec, rows: Mapping[str, int], missing: str) -> Contents:
    kept, dropped = (
        f"{rows[fate]:,}{percent_of(rows[fate], rows['rows_in'])}" for fate in ("rows_kept", "rows_dropped")
    )
    joined = ""
    if spec.row_columns != RunSpec.row_columns:
        joined = f", as {' and '.join(map(cell, spec.row_columns))} of the kept rows do"
    return Contents(
        rows=rows["rows_kept"],
        subsets={"default": "data", "scores": "scores"},
        done="filtered" if spec.where else "scored",
        summary=_summary(spec, rows, missing),
        how_to_load=how_to_load(spec, folder="data", called="kept", also=_rows_not_here(spec)),
        files="The subset `scores` has a line for *every* row that was read, kept or not, so that another threshold needs no "
        f"new scoring: `shard` and `row` say which row it is{joined}.",
        row_columns=spec.row_columns,
        filter=f"| Filter | {cell(spec.where) if spec.where else 'none: every scored row is kept'} |\n",
        kept=f"| Kept | {kept} |\n| Dropped | {dropped} |\n",
        limits=[_NEAR_THE_EDGE] if spec.where else [],
        source_rows="rows",
    )


def _summary(spec: RunSpec, rows: Mapping[str, int], missing: str) -> str:
    kept, rows_in = rows["rows_kept"], rows["rows_in"]
    read = ("the first " if spec.limit_rows else "") + counted(rows_in, "row")
    why = f": {_best(spec.best)}" if spec.best else f": those for which {code(spec.where)}" if spec.where else ""
    here = "the rows that pass the filter are here" if spec.where else "those that could be scored are here"
    names = [code(name) for name, _ in spec.columns]
    columns = f"these of its columns: {', '.join(names)}" if spec.only_columns else "all its columns"
    return f"""{kept:,} of {read}{percent_of(kept, rows_in)} of {source_name(spec)}{why}. Every row was scored with \
{kinds_of_models(spec)}{missing};
{here}, in the source's order and with {columns}."""


def _best(best: BestRows) -> str:
    """Describe the best rows, for example "those with the highest `score`, which have 10% of all `token_count`"."""
    scores = ("maximum of " if len(best.columns) > 1 else "") + ", ".join(map(code, best.columns))
    within = f", within each {code(best.within)} that is not null" if best.within else ""
    of = f"all {code(best.by)}" if best.by else "the scored rows"
    return f"those with the highest {scores}, which {'have' if best.by else 'are'} {best.share} of {of}{within}"


def _rows_not_here(spec: RunSpec) -> str:
    root = root_of(spec)
    shard, row = ('"' + name.replace('"', '""') + '"' for name in spec.row_columns)
    return f"""
-- The rows of the source that are not here, with their scores: the best first
SELECT scores.* FROM '{root}scores/**/*.parquet' AS scores
ANTI JOIN '{root}data/**/*.parquet' AS kept
  ON scores."shard" = kept.{shard} AND scores."row" = kept.{row}
ORDER BY scores."{spec.scorings[0].score_column}" DESC NULLS LAST LIMIT 10;
"""
