"""The ledger: the record of every shard's state, in Redis. It is the only source of truth about a run.

`ledger` has the class `Ledger`, `attempts` its methods for workers, and `results` its methods that read progress and
results. `records` has arguments and results, `base` the names of the keys, `connect` the connection, and `lua/` one
atomic script per transition. Knows no Celery: `shardsift/fleet/dispatch.py` sends messages.
"""

from shardsift.fleet.ledger.attempts import new_nonce as new_nonce
from shardsift.fleet.ledger.ledger import Ledger as Ledger
from shardsift.fleet.ledger.records import Claim as Claim
from shardsift.fleet.ledger.records import Counts as Counts
from shardsift.fleet.ledger.records import Failure as Failure
from shardsift.fleet.ledger.records import Publication as Publication
from shardsift.fleet.ledger.records import Refusal as Refusal
from shardsift.fleet.ledger.records import RunningShard as RunningShard
from shardsift.fleet.ledger.results import Pace as Pace
