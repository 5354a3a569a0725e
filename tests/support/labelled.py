"""Labelled texts of three topics, which differ in their words."""

import random
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

_WORDS = {
    "biology": "enzyme cell protein gene tissue membrane species larva",
    "cooking": "butter oven dough simmer garlic recipe whisk spoon",
    "sport": "goal striker referee league tournament coach sprint medal",
}


def write_topics(file: Path, *, rows: int, seed: int = 0) -> Path:
    """Write rows with the columns `text`, `topic` (a name) and `label` (the topic's number: 1, 3 or 5)."""
    rng = random.Random(seed)
    file.parent.mkdir(parents=True, exist_ok=True)
    topics = [list(_WORDS)[row % len(_WORDS)] for row in range(rows)]
    texts = [f"the {' and the '.join(rng.choices(_WORDS[topic].split(), k=6))}" for topic in topics]
    labels = [1.0 + 2.0 * list(_WORDS).index(topic) for topic in topics]
    pq.write_table(pa.table({"text": texts, "topic": topics, "label": labels}), file)
    return file
