"""A sentiment pipeline in half precision, and shardsift, on the same texts.

python examples/coming_from/sentiment.py --model ./my-classifier --input ./posts.parquet
"""

from collections.abc import Callable

import numpy as np
import torch
from side_by_side import Way, arguments, compare, ours
from transformers import pipeline

given = arguments(__doc__, model="distilbert/distilbert-base-uncased-finetuned-sst-2-english")
fast, exact = ours(given.model), ours(given.model, "float32")
device = "cuda" if torch.cuda.is_available() else "cpu"
half = torch.float16 if device == "cuda" else torch.bfloat16  # CPUs are slow in float16


def sentiment(dtype: torch.dtype) -> Callable[[list[str]], np.ndarray]:
    classifier = pipeline("sentiment-analysis", model=given.model, device=device, dtype=dtype)
    labels = classifier.model.config.id2label.values()

    def score(texts: list[str]) -> np.ndarray:
        """Return the score of each label. Without `top_k=None`, the pipeline returns only the best label."""
        found = classifier(texts, batch_size=32, truncation=True, top_k=None)
        by_label = [{one["label"]: one["score"] for one in scores} for scores in found]
        return np.array([[scores[label] for label in labels] for scores in by_label])

    return score


compare(
    given,
    Way(name="pipeline, batches of 32", dtype=str(half).removeprefix("torch."), score=sentiment(half)),
    Way(name="pipeline, batches of 32", dtype="float32", score=sentiment(torch.float32)),
    exact,
    fast,
)
