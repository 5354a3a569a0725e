"""The scoring core: texts in, scores in row order out. Knows no queue, no Redis and no Hub.

scorer = load_scorer("HuggingFaceFW/fineweb-edu-classifier")
scorer.score(["The mitochondrion is …"]).values      # float32, one row a text, one column an output
"""

from worker.scoring.errors import ModelError, ParityError
from worker.scoring.load import load_scorer
from worker.scoring.scorer import EncodedRows, Scorer, Scores

__all__ = ["EncodedRows", "ModelError", "ParityError", "Scorer", "Scores", "load_scorer"]
