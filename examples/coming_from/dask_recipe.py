"""The Dask recipe for FineWeb-Edu, and shardsift, on the same texts.

python examples/coming_from/dask_recipe.py --model ./my-classifier --input ./shards/000_00000.parquet
"""

from functools import cache

import dask.dataframe as dd
import numpy as np
import pandas as pd
import torch
from side_by_side import Way, arguments, compare, ours
from transformers import pipeline

given = arguments(__doc__, model="HuggingFaceFW/fineweb-edu-classifier")
fast, exact = ours(given.model), ours(given.model, "float32")


@cache  # the recipe loads the model again for each partition
def classifier():
    device = "cuda" if torch.cuda.is_available() else "cpu"
    return pipeline("text-classification", model=given.model, device=device, dtype=torch.float32)


def compute_scores(texts: pd.Series) -> pd.Series:
    found = classifier()(texts.tolist(), batch_size=768, padding="longest", truncation=True, function_to_apply="none")
    return pd.Series([one["score"] for one in found])


def recipe(texts: list[str]) -> np.ndarray:
    df = dd.from_pandas(pd.DataFrame({"text": texts}), npartitions=1)
    return df.text.map_partitions(compute_scores, meta=pd.Series([0.0])).compute(scheduler="synchronous").to_numpy()


compare(given, Way(name="Dask recipe", dtype="float32", score=recipe), exact, fast)
