"""The ledger: the record of every shard's state, in Redis. It is the only source of truth about a run.

`ledger` has the class `Ledger`, `attempts` its methods for workers, and `results` its methods that read progress and
results. `records` has arguments and results, `base` the names of the keys, `connect` the connection, and `lua/` one
atomic script per transition. Knows no Celery: `shardsift/fleet/dispatch.py` sends messages.
"""

from shardsift.fleet.ledger.attempts import new_nonce
from shardsift.fleet.ledger.ledger import Ledger
from shardsift.fleet.ledger.records import Claim, Counts, Failure, Publication, Refusal, RunningShard
from shardsift.fleet.ledger.results import Pace

__all__ = [
    "Claim",
    "Counts",
    "Failure",
    "Ledger",
    "Pace",
    "Publication",
    "Refusal",
    "RunningShard",
    "new_nonce",
]
