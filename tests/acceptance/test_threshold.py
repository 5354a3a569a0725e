"""How to choose the threshold, as docs/threshold.md says it: on the demo's data, by the demo's classifier."""

import os
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

from shardsift.producer.evidence.evaluate import Question, evaluate_run
from shardsift.producer.evidence.rows_to_label import rows_to_label
from shardsift.producer.evidence.sheet import LABEL, Labels, read_labels
from shardsift.producer.local.demo import SHARDS, fit_classifier
from shardsift.producer.local.demo_data import write_labelled, write_shards
from shardsift.producer.scores.scored_run import scored_run
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


def test_the_intervals_of_two_hundred_labels_hold_the_truth(folder: Path, rows: pd.DataFrame) -> None:
    """About 95 of 100 samples should. With that rate, one machine in a hundred would see fewer than 90."""
    settings: Any = None  # a published run needs none
    run = scored_run(str(folder / "kept"), settings)
    is_kept = rows["score"] >= 3
    truth = {"precision": rows["good"][is_kept].mean(), "recall": (rows["good"] & is_kept).sum() / rows["good"].sum()}
    held = Counter[str]()

    for seed in range(100):
        table = rows_to_label(run, rows=200, seed=seed, source=(str(folder / "demo-output/shards"),)).table
        places = [*zip(table["shard"].to_pylist(), table["row"].to_pylist(), strict=True)]
        labels = pa.array([str(int(one)) for one in rows.loc[places, "good"]])
        labelled = table.set_column(table.column_names.index(LABEL), LABEL, labels)
        found = evaluate_run(run, Labels(table=labelled, name="labels", digest=""), Question()).at_threshold
        assert found
        for name, share in truth.items():
            interval = getattr(found, name)
            held[name] += interval.low <= share <= interval.high

    assert min(held.values()) >= 90, held
