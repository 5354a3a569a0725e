"""The reference: what users did before us. pandas, a transformers pipeline in float32, and a filter on the raw score."""

from pathlib import Path

import pandas as pd
import torch
from transformers import pipeline


def reference_scores(texts: list[str], model: Path) -> list[float]:
    classify = pipeline("text-classification", model=str(model), dtype=torch.float32, device="cpu")
    answers = classify(texts, batch_size=16, padding="longest", truncation=True, function_to_apply="none")
    return [answer["score"] for answer in answers]


def reference_rows(shards: Path, model: Path) -> pd.DataFrame:
    """Every row of every shard, in order, with the reference's raw score in the column `reference`."""
    rows = pd.concat([pd.read_parquet(shard) for shard in sorted(shards.glob("*.parquet"))], ignore_index=True)
    return rows.assign(reference=reference_scores(rows["text"].tolist(), model))
