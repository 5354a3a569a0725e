"""Write the two files of a shard as a worker does, with given scores instead of a model's."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from shardsift.fleet.inputs.open_input import open_input
from shardsift.fleet.run.output_columns import describe_columns
from shardsift.fleet.run.spec import RunSpec
from shardsift.worker.scoring import Scores
from shardsift.worker.shard.reader import read_windows
from shardsift.worker.shard.writer import RowCounts, ShardWriter
from support.records import a_shard, a_spec


@dataclass(frozen=True)
class Written:
    data: Path
    scores: Path
    counts: RowCounts

    @property
    def kept(self) -> pa.Table:
        return pq.read_table(self.data)

    @property
    def lines(self) -> list[dict[str, Any]]:
        return list(pq.read_table(self.scores).to_pylist())


class Chosen:
    """A filter that keeps the given rows of a window."""

    rows: list[int]

    def keep(self, scored: pa.Table) -> npt.NDArray[np.int64]:
        return np.array(self.rows, dtype=np.int64)


def write_shard(
    folder: Path,
    rows: pa.Table,
    values: npt.NDArray[np.float32],
    *,
    errors: dict[int, str] | None = None,
    kept: list[int] | None = None,
    spec: RunSpec | None = None,
    window_rows: int = 1000,
) -> Written:
    """Write a shard as a worker does, with the scores `values` and the filter's choice `kept`."""
    folder.mkdir(parents=True, exist_ok=True)
    source, errors = folder / "input.parquet", errors or {}
    kept = [row for row in range(len(rows)) if row not in errors] if kept is None else kept
    pq.write_table(rows, source)
    with open_input(str(source)) as file:
        columns = describe_columns(file.schema)
        spec = a_spec(**{**(spec or a_spec()).__dict__, "columns": columns, "window_rows": window_rows})
        shard = a_shard("s", uri=str(source))
        chosen = Chosen()
        writer = ShardWriter(folder, file.schema, shard, spec, chosen)  # type: ignore[arg-type]
        for window in read_windows(file, shard, spec):
            here = range(window.first_row, window.first_row + len(window.rows))
            scores = Scores(
                values=values[here.start : here.stop],
                errors={row - here.start: reason for row, reason in errors.items() if row in here},
            )
            chosen.rows = [row - here.start for row in kept if row in here]
            writer.write(window, [scores], [f"texts from {window.first_row}"])
        data, side = writer.close()
    return Written(data.path, side.path, writer.counts)
