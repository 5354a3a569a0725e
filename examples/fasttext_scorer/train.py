"""Train a small model of quality: Python's documentation is `good`, made-up advertising is `spam`.

    python examples/fasttext_scorer/train.py model.bin

The same command writes the same bytes, because fastText trains in one thread here. A real model learns from texts of your own.
"""

import random
import sys
import tempfile
from pathlib import Path
from pydoc_data.topics import topics

import fasttext

TEXTS = 400  # of each label
OFFERS = [
    "buy",
    "cheap",
    "now",
    "best",
    "offer",
    "deal",
    "free",
    "win",
    "prize",
    "click",
    "limited",
    "today",
    "sale",
    "bonus",
]

draw = random.Random(1)
paragraphs = [" ".join(text.split()) for topic in topics.values() for text in topic.split("\n\n")]
good = [text for text in draw.sample(paragraphs, len(paragraphs)) if len(text) > 100][:TEXTS]
spam = [" ".join(draw.choices(OFFERS, k=draw.randint(5, 40))) for _ in range(TEXTS)]

with tempfile.TemporaryDirectory() as folder:
    lines = Path(folder) / "train.txt"
    lines.write_text("".join(f"__label__good {a}\n__label__spam {b}\n" for a, b in zip(good, spam, strict=True)))
    model = fasttext.train_supervised(
        str(lines), lr=0.1, epoch=5, dim=8, wordNgrams=2, bucket=2000, thread=1, verbose=0
    )
model.save_model(sys.argv[1])
print(f"{sys.argv[1]} tells {' from '.join(label.removeprefix('__label__') for label in model.labels)}")
