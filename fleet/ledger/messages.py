"""Which shards need a message in the queue. `fleet/dispatch.py` sends them."""

from collections.abc import Iterable

from fleet.ledger.base import LedgerBase, batches
from fleet.ledger.keys import Keys
from fleet.ledger.records import Due, LostLease

_DUE_LIMIT = 1000  # shards of each kind in one answer


class Messages(LedgerBase):
    """A queued shard waits, or its message has been sent."""

    def take_due(self, run_id: str, *, room: int) -> Due:
        """The shards that need a message now. They count as sent from here on. `room` limits the shards never tried."""
        keys = Keys(run_id)
        arguments = [
            room,
            _DUE_LIMIT,
            self._lease_ms,
            self._outage_ms,
            self._max_attempts,
            keys.attempts(""),
        ]
        again, fresh, lost = self._run_script("take_due", keys.of(), arguments)
        leases = tuple(
            LostLease(shard=shard, worker=worker, is_failed=fate == "failed")
            for shard, worker, fate in zip(lost[::3], lost[1::3], lost[2::3], strict=True)
        )
        return Due(again=again, fresh=fresh, more=max(len(again), len(fresh)) >= _DUE_LIMIT, lost=leases)

    def sent_before(self, run_id: str, *, seconds: float) -> list[str]:
        """Shards whose message was sent at least this many seconds ago, and which no worker has claimed since."""
        age_ms = self._now_ms() - int(seconds * 1000)
        return [str(name) for name in self.redis.zrangebyscore(Keys(run_id).sent, "-inf", age_ms)]

    def queue_again(self, run_id: str, shards: Iterable[str], *, seconds: float) -> list[str]:
        """Queue shards again whose message is lost, if it was sent at least this many seconds ago. Returns their names."""
        age_ms = int(seconds * 1000)
        return [
            name
            for batch in batches(shards)
            for name in self._run_script("queue_again", Keys(run_id).of(), [age_ms, *batch])
        ]

    def withdraw(self, run_id: str, shards: Iterable[str]) -> None:
        """Let sent shards wait again whose messages were removed from the queue. May run twice."""
        keys = Keys(run_id)
        for batch in batches(shards):
            self._run_script("withdraw", keys.of(), [keys.attempts(""), *batch])

    def forget_messages(self, run_id: str) -> None:
        """Queue every open shard again, even if it is leased. Call this only if all workers and messages are gone.

        A running attempt counts as stopped, because its worker was ended on purpose.
        """
        keys = Keys(run_id)
        self._run_script("forget_messages", keys.of(), [keys.attempts("")])
