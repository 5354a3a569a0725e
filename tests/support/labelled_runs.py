"""A published run of which is known which rows are good: the demo's educational texts, by a model that does not know them."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from support.processes import call_command
from support.small_run import Runs

SHARDS, ROWS = 4, 60
TOPICS = ["law", "art", None, "law"]  # of rows 0, 1, 2 and 3, and so on
THRESHOLD = 3.25


@dataclass(frozen=True, kw_only=True)
class LabelledRun:
    """A run over `source`, published at `output`, the commands on it, and other runs beside it."""

    runs: Runs
    source: Path
    output: Path
    environment: dict[str, str]
    files: Path
    _names: Iterator[int] = field(default_factory=lambda: iter(range(1000)))

    @property
    def rows(self) -> pd.DataFrame:
        """All scored rows with the columns of the input, and whether they are good. Indexed by shard and row."""
        scores = pd.concat(map(pd.read_parquet, sorted(self.output.glob("scores/*.parquet"))), ignore_index=True)
        source = pd.concat(map(pd.read_parquet, sorted(self.source.glob("*.parquet"))), ignore_index=True)
        rows = pd.concat([scores, source.drop(columns=[*scores.columns], errors="ignore")], axis="columns")
        rows["good"] = rows["url"].str.contains("//(?:reference|docstrings)")
        return rows.dropna(subset="score").set_index(["shard", "row"])

    def refiltered(self, output: str = "again", **choice: Any) -> Path:
        """Publish a run over its scores."""
        return self.runs.refilter(self.output, output, input_uris=(str(self.source),), **choice)

    def command(self, name: str, *arguments: object, exit_code: int = 0, output: Path | None = None) -> list[str]:
        """What the command prints, with the lines of stderr last."""
        done = call_command(
            "producer", name, str(output or self.output), *map(str, arguments), environment=self.environment
        )
        assert done.returncode == exit_code, done.stderr
        return [*done.stdout.splitlines(), *done.stderr.splitlines()]

    def refused(self, name: str, *arguments: object, **options: Any) -> str:
        """The one line that the command prints when it ends with exit code 2."""
        *_, line = self.command(name, *arguments, exit_code=2, **options)
        return line

    def sheet(self, *arguments: object, ending: str = ".parquet", **options: Any) -> Path:
        """A new sheet of `producer sample`."""
        file = self.files / f"sheet-{next(self._names)}{ending}"
        self.command("sample", "--input", self.source, "--output", file, *arguments, **options)
        return file

    def labelled(self, sheet: Path) -> Path:
        """The sheet, after its labels were filled in."""
        table = pq.read_table(sheet)
        truth = self.rows["good"]
        labels = [truth[place] for place in zip(table["shard"].to_pylist(), table["row"].to_pylist(), strict=True)]
        write(sheet, table, label=[str(float(one)) for one in labels])
        return sheet


def write(sheet: Path, table: pa.Table, **columns: Any) -> None:
    for name, values in columns.items():
        table = table.set_column(table.column_names.index(name), name, pa.array(values))
    pq.write_table(table, sheet)
