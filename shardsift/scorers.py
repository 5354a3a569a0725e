"""The names that a package with its own scorer imports. examples/own_scorer is such a package.

A `ScorerKind` is the light half: it names the model and its labels, for the producer. A `Scorer` is the other half: it
scores texts in a worker. The package registers its kind as an entry point of the group `shardsift.scorers`.
"""

from shardsift.fleet.errors import UsageError
from shardsift.fleet.run.model import Model
from shardsift.fleet.scorers.kinds import ScorerKind
from shardsift.worker.scoring import GoOn, Scorer, ScorerInfo, Scores

__all__ = ["GoOn", "Model", "Scorer", "ScorerInfo", "ScorerKind", "Scores", "UsageError"]
