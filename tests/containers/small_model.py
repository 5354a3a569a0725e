"""The command `python -m containers.small_model FOLDER PARQUET`: write a model, and print the texts a second that it scores here.

A process of its own, since torch and transformers print much on stderr.
"""

import sys
import time
from pathlib import Path

import pyarrow.parquet as pq

from shardsift import load_scorer, score
from support.models import minilm_classifier


def main() -> None:
    folder, texts = map(Path, sys.argv[1:])
    scorer = load_scorer(minilm_classifier(folder), parity_rows=0, threads=1)
    column = pq.read_table(texts)["text"].to_pylist()
    began = time.monotonic()
    score(column, scorer)
    sys.stdout.write(f"{len(column) / (time.monotonic() - began)}\n")


if __name__ == "__main__":
    main()
