"""From a large model to a small one: label texts with the large one, train the small one on that, and score with it.

    python examples/large_to_small.py --input posts.jsonl --text-column title,selftext --labelled hf://datasets/me/topics

Needs: pip install '.[worker,local,train]' pandas. Stop it whenever you like: the same command goes on. It prints the seconds of
each step.
"""

import argparse
import subprocess
import sys
import time
from pathlib import Path

import fsspec
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

LABELS = ["climate change", "technology", "health", "politics"]
FEWEST_TEXTS = 5  # a label with fewer texts is not learned

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--input", required=True, help="one file of texts")
parser.add_argument("--text-column", default="text", help="one or more, with commas between them")
parser.add_argument("--labels", default=",".join(LABELS))
parser.add_argument("--labelled", required=True, help="the dataset to publish: hf://datasets/NAME/REPO or a folder")
parser.add_argument("--large-model", default="facebook/bart-large-mnli", help="a model of natural language inference")
parser.add_argument("--base-model", default="sentence-transformers/all-MiniLM-L6-v2", help="the small one to train")
parser.add_argument(
    "--least-score", type=float, default=0.5, help="of the large model, for a text that is learned from"
)
parser.add_argument("--folder", type=Path, default=Path("study"), help="of all that is not published")
given = parser.parse_args()

folder = given.folder.absolute()
folder.mkdir(exist_ok=True)
learned, classifier, scored = (folder / name for name in ("learned.parquet", "classifier", "scored"))
columns = ["--text-column", given.text_column]
seconds: dict[str, float] = {}


def step(name: str, *command: object) -> None:
    began = time.perf_counter()
    if code := subprocess.run([sys.executable, "-m", "shardsift", *map(str, command)]).returncode:
        sys.exit(code)
    seconds[name] = time.perf_counter() - began


def rows_of(output: str | Path) -> pd.DataFrame:
    files, root = fsspec.url_to_fs(str(output))
    paths = sorted(path for path in files.find(f"{root}/data") if path.endswith(".parquet"))
    return pa.concat_tables(pq.read_table(path, filesystem=files) for path in paths).to_pandas()


zero_shot = ["--model", f"topic={given.large_model}", "--labels", given.labels]
step("label", "run", "--input", given.input, "--output", given.labelled, "--keep-all", *zero_shot, *columns)

labelled = rows_of(given.labelled)
sure = labelled[labelled["topic_score"] >= given.least_score]
sure = sure[sure.groupby("topic_label")["row"].transform("size") >= FEWEST_TEXTS]
texts = ["\n\n".join(filter(None, row)) for row in sure[given.text_column.split(",")].to_numpy()]  # as a run joins them
pd.DataFrame({"text": texts, "label": sure["topic_label"]}).to_parquet(learned, index=False)

if not classifier.exists():
    step("train", "train", "--data", learned, "--base-model", given.base_model, "--output", classifier)

one_classifier = ["--keep-all", "--model", f"topic={classifier}", *columns]
step("score", "run", "--input", given.input, "--output", scored, *one_classifier)

for name, taken in {**seconds, "all": sum(seconds.values())}.items():
    print(f"{name:<8} {taken:7.1f} s")
both = labelled.merge(rows_of(scored), on="row", suffixes=("_large", "_small"))
equal = (both["topic_label_large"] == both["topic_label_small"]).sum()
print(
    f"Both models choose the same label for {equal:,} of {len(both):,} texts. The small one learned from {len(sure):,}."
)
