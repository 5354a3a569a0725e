"""A zero-shot pipeline under pandas' `.apply`, and shardsift, on the same posts and labels.

python examples/coming_from/apply_over_a_pipeline.py --model ./my-nli-model --input ./posts.parquet --text-column selftext
"""

import numpy as np
import pandas as pd
import torch
from side_by_side import Way, arguments, compare, ours
from transformers import pipeline

LABELS = [
    *("climate change", "technology", "health", "politics", "sport", "food", "travel", "music"),
    *("science", "education", "economy", "religion", "film", "gaming", "law", "nature"),
]

given = arguments(__doc__, model="facebook/bart-large-mnli")
fast, exact = ours(given.model, labels=LABELS), ours(given.model, "float32", labels=LABELS)
device = "cuda" if torch.cuda.is_available() else "cpu"
classifier = pipeline("zero-shot-classification", model=given.model, device=device, dtype=torch.float32)


def in_order(found: dict) -> list[float]:
    """Return the scores in the order of LABELS. The pipeline returns the best label first."""
    scores = dict(zip(found["labels"], found["scores"], strict=True))
    return [scores[label] for label in LABELS]


def row_by_row(texts: list[str]) -> np.ndarray:
    posts = pd.DataFrame({"text": texts})
    return np.array(posts["text"].apply(lambda text: in_order(classifier(text, LABELS))).tolist())


def in_batches(texts: list[str]) -> np.ndarray:
    return np.array([in_order(found) for found in classifier(texts, LABELS, batch_size=20)])


compare(
    given,
    Way(name=".apply", dtype="float32", score=row_by_row),
    Way(name="pipeline, batches of 20", dtype="float32", score=in_batches),
    exact,
    fast,
)
