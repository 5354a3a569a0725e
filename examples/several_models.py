"""Score a column of a Parquet file with two models in one pass, and write the rows that both want.

    python examples/several_models.py ./shards/000_00000.parquet ./kept.parquet
    python examples/several_models.py ./shards/000_00000.parquet ./kept.parquet ./my-edu-classifier ./my-toxicity-classifier

For more files than fit in memory, use a run: producer run --model edu=MODEL --model tox=MODEL --where '…'.
"""

import sys

import pandas as pd

import shardsift

source, target, *given = sys.argv[1:]
models = given or ["HuggingFaceFW/fineweb-edu-classifier", "unitary/toxic-bert"]

frame = pd.read_parquet(source)
scores = shardsift.score(frame["text"], dict(zip(("edu", "tox"), models, strict=True)))
frame = frame.join(scores.to_pandas().set_index(frame.index))  # edu_score, tox_score, …, error
print(frame[["edu_score", "tox_score"]].describe())

kept = frame[(frame["edu_score"] >= 3) & (frame["tox_score"] < 0.5)]
kept.to_parquet(target)
print(f"{len(kept):,} of {len(frame):,} rows are in {target}")
