"""The scoring core: turns texts into scores, in row order. Knows nothing of queues, Redis or the Hub.

scorer = load_scorer("HuggingFaceFW/fineweb-edu-classifier")
scorer.score(["The mitochondrion is …"]).values  # float32, one row per text, one column per output

Torch is imported on the first use of `load_scorer` or `SequenceClassifier`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from worker.scoring.rows import EncodedRows, GoOn, Scores
from worker.scoring.scorer import (
    DeviceFault,
    DeviceUse,
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
    SharingScorer,
)

if TYPE_CHECKING:
    from worker.scoring.load import load_scorer
    from worker.scoring.sequence_classifier import SequenceClassifier

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
    "SequenceClassifier",
    "SharingScorer",
    "load_scorer",
]
_NEED_TORCH = {"load_scorer": "worker.scoring.load", "SequenceClassifier": "worker.scoring.sequence_classifier"}


def __getattr__(name: str) -> Any:
    if name in _NEED_TORCH:
        return getattr(import_module(_NEED_TORCH[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
