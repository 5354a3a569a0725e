"""Add a score to each row of a Parquet file with pandas, and write the rows with a high one.

    python examples/score_dataframe.py ./shards/000_00000.parquet ./kept.parquet
    python examples/score_dataframe.py ./shards/000_00000.parquet ./kept.parquet ./my-classifier

For more files than fit in memory, use a run: examples/run_local.py.
"""

import sys

import pandas as pd

import shardsift

source, target = sys.argv[1:3]
model = sys.argv[3] if len(sys.argv) > 3 else "HuggingFaceFW/fineweb-edu-classifier"

scorer = shardsift.load_scorer(model)
print(scorer)

frame = pd.read_parquet(source)
frame["score"] = scorer.score(frame["text"])  # NaN for a text that is missing or blank
print(frame["score"].describe())

kept = frame[frame["score"] >= 3]
kept.to_parquet(target)
print(f"{len(kept):,} of {len(frame):,} rows are in {target}")
