"""The reference, which users ran before: pandas, a transformers pipeline in float32, and a filter on the raw score."""

from pathlib import Path

import pandas as pd
import torch
from transformers import pipeline


def reference_scores(texts: list[str], model: Path, *, batch_size: int = 16) -> list[float]:
    classify = pipeline("text-classification", model=str(model), dtype=torch.float32, device="cpu")
    padding = {"padding": "longest"} if batch_size > 1 else {}  # some tokenizers have no padding token
    answers = classify(texts, batch_size=batch_size, truncation=True, function_to_apply="none", **padding)
    return [answer["score"] for answer in answers]


def reference_rows(shards: Path, model: Path) -> pd.DataFrame:
    """All rows of all shards, in order, with the reference's raw score in the column `reference`."""
    rows = pd.concat([pd.read_parquet(shard) for shard in sorted(shards.glob("*.parquet"))], ignore_index=True)
    return rows.assign(reference=reference_scores(rows["text"].tolist(), model))
