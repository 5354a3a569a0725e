"""The runs that this worker leaves to others for a while, because it may not read or write their storage.

Such a worker fails in a second and is free again, so it would take one shard after another while the others score, and
use up their attempts.
"""

import time

_SECONDS = 600.0  # in which somebody may mend it


class AvoidedRuns:
    """Runs by id. Each is tried again after ten minutes."""

    def __init__(self) -> None:
        self._until: dict[str, float] = {}  # monotonic time by run

    def add(self, run_id: str) -> None:
        self._until[run_id] = time.monotonic() + _SECONDS

    def __contains__(self, run_id: str) -> bool:
        return self._until.get(run_id, 0.0) > time.monotonic()
