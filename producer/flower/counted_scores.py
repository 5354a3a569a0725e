"""The spread of a run's scores, from the receipts of its done shards. Each receipt is read once."""

import re
from collections.abc import Set
from itertools import islice

from fleet.ledger import Ledger
from fleet.spec import RunSpec
from producer.scores.distribution import Distribution, added
from producer.scores.read import distributions_so_far

_RECEIPTS_A_LOOK = 2000  # reading them takes about 0.1 s; the scores of a larger run are complete after some looks
_AT_LEAST = re.compile(r'"(?P<column>[^"]+)" >= (?P<score>-?\d+(\.\d+)?)')  # what --min-score becomes


class CountedScores:
    """Not thread-safe."""

    def __init__(self, ledger: Ledger, run_id: str, spec: RunSpec) -> None:
        self._ledger, self._run_id, self._spec = ledger, run_id, spec
        self._counted: set[str] = set()
        self._spread: list[Distribution] = []

    def look(self, done: Set[str]) -> None:
        """Count the scores of shards that have become done since the last look."""
        if not self._counted <= done:  # shards are scored again
            self._counted, self._spread = set(), []
        names = list(islice(done - self._counted, _RECEIPTS_A_LOOK))
        receipts = list(self._ledger.receipts(self._run_id, names))
        if receipts:
            more = distributions_so_far(self._spec, receipts)
            self._spread = [added(pair) for pair in zip(self._spread, more, strict=True)] if self._spread else more
            self._counted |= {receipt.shard for receipt in receipts}

    def as_json(self) -> dict[str, object]:
        where = self._spec.where
        return {
            "shards": len(self._counted),
            "where": where,
            "columns": [_as_json(one, where) for one in self._spread],
        }


def _as_json(one: Distribution, where: str | None) -> dict[str, object]:
    """`threshold` is that of the filter, if the filter compares this column with one number and does nothing else."""
    filtered = _AT_LEAST.fullmatch(where or "")
    width = one.bin_width()
    return {
        "column": one.column,
        "rows": one.rows,
        "bin_width": width,
        "bins": [{"from": edge, "rows": rows} for edge, rows in one.histogram(width).items()],
        "threshold": float(filtered["score"]) if filtered and filtered["column"] == one.column else None,
        "keep_rates": [
            {"threshold": threshold, "rows": one.at_least(threshold)} for threshold in one.thresholds() if one.rows
        ],
    }
