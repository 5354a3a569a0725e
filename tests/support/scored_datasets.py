"""Published datasets whose scores a test chooses, without a model. They have a manifest and scores, and no kept rows."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from shardsift.fleet.inputs.open_input import open_input
from shardsift.fleet.run.output_columns import describe_columns
from shardsift.fleet.run.receipt import Receipt, empty_histogram, with_values
from shardsift.fleet.run.spec import Shard
from shardsift.fleet.storage.output import MANIFEST_PATH
from shardsift.producer.planning.inputs import list_input
from support.outputs import file_sha256
from support.records import a_manifest, a_receipt, a_scoring_receipt, a_spec, an_output_file

Scores = Sequence[float] | npt.NDArray[Any]  # of a shard's rows; NaN for an errored one


def write_texts(folder: Path, shards: Sequence[Mapping[str, Sequence[Any]]]) -> Path:
    """Write an input with these columns, a shard for each mapping. One column is `text`."""
    folder.mkdir(parents=True)
    for number, columns in enumerate(shards):
        pq.write_table(pa.table(dict(columns)), folder / f"{number:03}.parquet")
    return folder


def publish_scores(
    output: Path, source: Path, scores: Mapping[str, Scores], *, first_row: int = 0, **changes: Any
) -> str:
    """Publish scores for some shards of an input, beginning at `first_row` of each. `changes` are fields of the spec."""
    (output / "scores").mkdir(parents=True)
    shards = {shard.name: shard for shard in list_input(str(source)).shards}
    with open_input(str(source / "000.parquet")) as file:
        columns = describe_columns(file.schema)
    spec = a_spec(columns=columns, output_uri=str(output), int_score=False, **changes)
    receipts = [_publish(output, shards[name], spec.run_id, found, first_row) for name, found in scores.items()]
    (output / MANIFEST_PATH).write_bytes(a_manifest(spec.run_id, receipts, spec=spec))
    return str(output)


def _publish(output: Path, shard: Shard, run_id: str, scores: Scores, first_row: int) -> Receipt:
    values, path = np.asarray(scores, np.float32), f"scores/{shard.name}.parquet"
    errored = int(np.isnan(values).sum())
    pq.write_table(pa.table({"score": pa.array(values, from_pandas=True)}), output / path)
    histogram = with_values(empty_histogram("none"), values[~np.isnan(values)])
    return replace(
        a_receipt(run_id, shard),
        first_row=first_row,
        scores=an_output_file(path, rows=len(values), sha256=file_sha256(output / path)),
        rows_in=len(values),
        rows_kept=len(values) - errored,
        rows_dropped=0,
        rows_errored=errored,
        errors={"empty text": errored} if errored else {},
        scorings=(a_scoring_receipt(histogram=histogram),),
    )
