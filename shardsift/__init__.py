"""Score texts, and score and filter Parquet datasets, with transformer classifiers.

>>> import shardsift
>>> shardsift.score(["The mitochondrion is the powerhouse of the cell.", "Buy now!"])
>>> shardsift.run(input="./shards/*.parquet", output="./kept", min_score=3)

`score` and `load_scorer` work in this process. `run` does a whole run on this machine, and `enqueue` sends one to a
fleet of workers; `refilter` applies another filter to the stored scores. `status` shows the progress of a run, `scores`
the distribution of its scores, and `verify` checks its output. `sample` draws rows to label, and `evaluate` uses the
labels to measure how good each threshold is. `pause`, `resume`, `cancel` and `retry` control a run. `train` trains a
classifier. docs/python.md shows each of them.

Importing this package loads nothing else: a name is imported when it is first used, and torch when a model is loaded.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from shardsift.fleet.errors import NothingToAdd as NothingToAdd
    from shardsift.fleet.errors import ShardsiftError as ShardsiftError
    from shardsift.fleet.errors import TransientError as TransientError
    from shardsift.fleet.errors import UsageError as UsageError
    from shardsift.producer.api import cancel as cancel
    from shardsift.producer.api import enqueue as enqueue
    from shardsift.producer.api import evaluate as evaluate
    from shardsift.producer.api import pause as pause
    from shardsift.producer.api import refilter as refilter
    from shardsift.producer.api import resume as resume
    from shardsift.producer.api import retry as retry
    from shardsift.producer.api import run as run
    from shardsift.producer.api import sample as sample
    from shardsift.producer.api import scores as scores
    from shardsift.producer.api import status as status
    from shardsift.producer.api import verify as verify
    from shardsift.producer.evidence.evaluation import Evaluation as Evaluation
    from shardsift.producer.planning.enqueue import Enqueued as Enqueued
    from shardsift.producer.scores.scored_run import NearRow as NearRow
    from shardsift.producer.scores.scored_run import ScoredRun as ScoredRun
    from shardsift.producer.status import RunStatus as RunStatus
    from shardsift.producer.verify.verification import Verification as Verification
    from shardsift.worker.api.score import LoadedScorer as LoadedScorer
    from shardsift.worker.api.score import LoadedScorers as LoadedScorers
    from shardsift.worker.api.score import load_scorer as load_scorer
    from shardsift.worker.api.score import score as score
    from shardsift.worker.api.train import train as train
    from shardsift.worker.training.train_report import TrainReport as TrainReport

# The modules of the public names.
_HOMES = {
    "shardsift.fleet.errors": ("NothingToAdd", "ShardsiftError", "TransientError", "UsageError"),
    "shardsift.producer.api": (
        "cancel",
        "enqueue",
        "evaluate",
        "pause",
        "refilter",
        "resume",
        "retry",
        "run",
        "sample",
        "scores",
        "status",
        "verify",
    ),
    "shardsift.producer.evidence.evaluation": ("Evaluation",),
    "shardsift.producer.planning.enqueue": ("Enqueued",),
    "shardsift.producer.scores.scored_run": ("NearRow", "ScoredRun"),
    "shardsift.producer.status": ("RunStatus",),
    "shardsift.producer.verify.verification": ("Verification",),
    "shardsift.worker.api.score": ("LoadedScorer", "LoadedScorers", "load_scorer", "score"),
    "shardsift.worker.api.train": ("train",),
    "shardsift.worker.training.train_report": ("TrainReport",),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}
__all__ = sorted(_HOME_OF)


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return import_module("importlib.metadata").version("shardsift")
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_HOME_OF[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted([*__all__, *(name for name in globals() if name.startswith("__")), "__version__"])
