"""The scoring core: turns texts into scores, in row order. Knows nothing of queues, Redis or the Hub.

scorer = load.load_scorer("HuggingFaceFW/fineweb-edu-classifier")
scorer.score(["The mitochondrion is …"]).values  # float32, one row per text, one column per output

The names here need no torch; `load` and `sequence_classifier` do.
"""

from worker.scoring.scorer import (
    DeviceFault,
    DeviceUse,
    EncodedRows,
    GoOn,
    Hypotheses,
    MeteredScorer,
    ModelError,
    NoRoom,
    ParityError,
    Place,
    Reading,
    ReadingScorer,
    Scorer,
    ScorerInfo,
    Scores,
    SharingScorer,
)

__all__ = [
    "DeviceFault",
    "DeviceUse",
    "EncodedRows",
    "GoOn",
    "Hypotheses",
    "MeteredScorer",
    "ModelError",
    "NoRoom",
    "ParityError",
    "Place",
    "Reading",
    "ReadingScorer",
    "Scorer",
    "ScorerInfo",
    "Scores",
    "SharingScorer",
]
