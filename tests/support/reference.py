"""The reference, which users ran before: a transformers pipeline in float32."""

from pathlib import Path

import torch
from transformers import pipeline


def reference_scores(texts: list[str], model: Path, *, batch_size: int = 16) -> list[float]:
    classify = pipeline("text-classification", model=str(model), dtype=torch.float32, device="cpu")
    padding = {"padding": "longest"} if batch_size > 1 else {}  # some tokenizers have no padding token
    answers = classify(texts, batch_size=batch_size, truncation=True, function_to_apply="none", **padding)
    return [answer["score"] for answer in answers]
