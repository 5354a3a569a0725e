"""The queries of the tutorial that join `scores` to the user's own files, whatever their format is."""

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from shardsift.producer.local.demo_data import write_shards
from support.line_files import write_as_lines
from support.pages import texts_of
from support.small_run import Runs

READERS = {
    ".parquet": ("read_parquet(", "read_parquet(file)", "rows = pl.scan_parquet("),
    ".jsonl": ("read_json(", "read_json(file, lines=True)", "rows = pl.scan_ndjson("),
    ".csv": ("read_csv(", "read_csv(file)", "rows = pl.scan_csv("),
}


def query(mark: str) -> str:
    (text,) = (text for text in texts_of("docs/tutorial.md", "python") if mark in text)
    return text


@pytest.mark.parametrize("ending", READERS)
def test_each_row_of_an_input_is_joined_to_its_score(
    runs: Runs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ending: str
) -> None:
    write_shards(tmp_path / "parquet", shards=3, rows=20, seed=1)
    source = (
        tmp_path / "parquet" if ending == ".parquet" else write_as_lines(tmp_path / "parquet", tmp_path / "in", ending)
    )
    kept = pd.read_parquet(runs.publish(source, "kept") / "data")  # all rows
    by_url = dict(zip(kept["url"], kept["score"], strict=True))
    monkeypatch.chdir(tmp_path)
    of_duckdb, of_pandas, of_polars = READERS[ending]
    printed: list[Any] = []

    for text in (
        query("numbered AS").replace("read_parquet(", of_duckdb).replace("round(score, 2) AS score", "score"),
        query("def numbered").replace("read_parquet(file)", of_pandas).replace(".head(2)", ""),
        query("import polars").replace("rows = pl.scan_parquet(", of_polars).replace(".head(2)", ""),
    ):
        text = text.replace("demo-output/shards/*.parquet", f"{source.name}/*{ending}").replace("LIMIT 2", "")
        exec(text, {"print": printed.append})

    by_library = printed[0].fetchall(), printed[1].to_numpy().tolist(), printed[2].rows()
    assert [len(rows) for rows in (*by_library, by_url)] == [60] * 4
    for rows in by_library:
        assert {url: score for score, url in rows} == pytest.approx(by_url)
