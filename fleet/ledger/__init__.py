"""The ledger: the record of every shard's state in Redis, and the only truth about a run.

`ledger` has the class; `records` what it gives and takes; `keys` where it is kept; `connect` the way there; `lua/` the
moves, each of which happens whole or not at all. Knows no Celery: `fleet/dispatch.py` sends messages.
"""

from fleet.ledger.ledger import Ledger, new_nonce
from fleet.ledger.pace import Pace
from fleet.ledger.records import Claim, Counts, Failure, Publication, Refusal

__all__ = ["Claim", "Counts", "Failure", "Ledger", "Pace", "Publication", "Refusal", "new_nonce"]
