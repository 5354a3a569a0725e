"""Score the paragraphs of a text file with a model that is larger than one GPU: it is divided over two.

    python examples/larger_than_a_gpu.py README.md my-org/llama-70b-quality-classifier
    SHARDSIFT_DEVICE=cpu python examples/larger_than_a_gpu.py README.md ./a-small-llama-classifier    # to try it without GPUs

Needs: pip install 'shardsift[worker,sharded]'. A fleet does the same with: worker start --gpus-per-worker 2.
"""

import os
import sys
from pathlib import Path

import shardsift

source, model = sys.argv[1:]
os.environ.setdefault("SHARDSIFT_GPUS_PER_WORKER", "2")

paragraphs = [part for part in Path(source).read_text().split("\n\n") if part.strip()]
scorer = shardsift.load_scorer(model)  # compares itself with the model in float32 before it returns
print(f"{scorer.info.device}, {scorer.info.dtype}, {scorer.info.backend}")

scores = scorer.score(paragraphs)
for score, paragraph in sorted(zip(scores.tolist(), paragraphs, strict=True), reverse=True)[:10]:
    print(f"{score:7.3f}  {' '.join(paragraph.split())[:80]}")
