"""Score the lines of a text file, best first.

python examples/score_texts.py README.md
python examples/score_texts.py README.md ./my-classifier
"""

import sys
from pathlib import Path

import shardsift

file = sys.argv[1]
model = sys.argv[2] if len(sys.argv) > 2 else "HuggingFaceFW/fineweb-edu-classifier"

texts = [line for line in Path(file).read_text().splitlines() if line.strip()]
scores = shardsift.score(texts, model)

for score, text in sorted(zip(scores, texts, strict=True), reverse=True)[:10]:
    print(f"{score:6.2f}  {text[:100]}")
