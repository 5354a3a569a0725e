"""How to choose the threshold, as docs/threshold.md says it: on the demo's data, by the demo's classifier."""

import os
import subprocess
from collections import Counter
from pathlib import Path

import pandas as pd
import pytest

from shardsift.producer.evidence.sheet import LABEL, read_labels
from shardsift.producer.local.demo import SHARDS, fit_classifier
from shardsift.producer.local.demo_data import write_labelled, write_shards
from support.pages import script_of
from support.processes import BIN

pytestmark = pytest.mark.slow  # it fits the demo's classifier, and scores its rows

ROWS, SEED = 100, 20_241
RUN = (
    "producer run --input './demo-output/shards/*.parquet' --model ./demo-output/classifier --output ./kept --workers 2"
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which the commands of the page have run, after the run of the tutorial."""
    folder = tmp_path_factory.mktemp("threshold")
    write_shards(folder / "demo-output/shards", shards=SHARDS, rows=ROWS, seed=SEED)
    write_labelled(folder / "demo-output/labelled.parquet", rows=6 * ROWS, seed=SEED)
    fit_classifier(folder / "demo-output")
    environment = {name: value for name, value in os.environ.items() if name != "REDIS_URL"}
    environment |= {"PATH": f"{BIN}:{os.environ['PATH']}", "SHARDSIFT_STATE_DIR": str(folder / "state")}
    script = f"{RUN}\n{script_of('docs/threshold.md', instead={})}"
    subprocess.run(["bash", "-c", script], cwd=folder, env=environment, check=True, timeout=900)
    return folder


@pytest.fixture(scope="module")
def rows(folder: Path) -> pd.DataFrame:
    """The score of each row, and whether its text is educational, by shard and row."""
    files = sorted((folder / "demo-output/shards").glob("*.parquet"))
    urls = pd.concat(
        [pd.read_parquet(file, columns=["url"]).assign(shard=file.stem, row=range(ROWS)) for file in files]
    )
    rows = urls.merge(pd.read_parquet(folder / "kept/scores"), on=["shard", "row"])
    rows["good"] = rows["url"].str.startswith(("https://reference.", "https://docstrings."))
    return rows.set_index(["shard", "row"])


def test_the_commands_of_the_page_publish_at_the_threshold_and_draw_more_rows(folder: Path, rows: pd.DataFrame) -> None:
    assert len(pd.read_parquet(folder / "kept-2.5/data")) == (rows["score"] >= 2.5).sum()
    sheet = read_labels(folder / "more.csv")
    assert len(sheet.table) == 300
    assert Counter(sheet.table[LABEL].is_valid().to_pylist()) == {True: 200, False: 100}
    labelled = rows.loc[[*zip(sheet.shards[:200], sheet.rows[:200], strict=True)], "good"]
    assert labelled.tolist() == [label == 1 for label in sheet.labels.to_pylist()[:200]]
