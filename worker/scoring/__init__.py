"""The scoring core: texts in, scores in row order out. Knows no queue, no Redis and no Hub.

scorer = load_scorer("HuggingFaceFW/fineweb-edu-classifier", "auto")
scorer.score(["The mitochondrion is …"]).values      # float32, one row a text, one column an output
"""

from worker.scoring.model import load_scorer
from worker.scoring.scorer import Scorer, Scores

__all__ = ["Scorer", "Scores", "load_scorer"]
