"""The contents of a card for scores alone, whose rows are in the source."""

from collections.abc import Mapping

from shardsift.fleet.process.wording import counted
from shardsift.fleet.run.output_columns import ERROR
from shardsift.fleet.run.spec import RunSpec
from shardsift.producer.publishing.card_contents import Contents, how_to_load
from shardsift.producer.publishing.card_models import kinds_of_models
from shardsift.producer.publishing.card_text import source_name


def scores_alone(spec: RunSpec, rows: Mapping[str, int], missing: str) -> Contents:
    read = ("the first " if spec.limit_rows else "") + counted(rows["rows_in"], "row")
    return Contents(
        rows=rows["rows_in"],
        subsets={"scores": "scores"},
        done="scored",
        summary=f"The scores of {read} of {source_name(spec)}, by {kinds_of_models(spec)}{missing}.\n"
        "The rows themselves are in the source, where `shard` and `row` say.",
        how_to_load=how_to_load(spec, folder="scores", called="scores"),
        files="There is a line for *every* row that was read.",
        row_columns=RunSpec.row_columns,
        other_columns=[f"- `{ERROR.name}`: why a row has no score."],
        source_rows="scored rows",
    )
