"""The Redis keys of one run. docs/architecture.md says what each of them holds."""

PREFIX = "shardsift:"
REFUSED = PREFIX + "refused"
FINISHED = PREFIX + "finished"  # the list that wakes a finalizer


RUNS = PREFIX + "runs"  # the ids of all runs


class Keys:
    def __init__(self, run_id: str) -> None:
        self.run = f"{PREFIX}run:{run_id}"
        self.shards = f"{self.run}:shards"
        self.waiting = f"{self.run}:waiting"
        self.sent = f"{self.run}:sent"
        self.running = f"{self.run}:running"
        self.failed = f"{self.run}:failed"
        self.receipts = f"{self.run}:receipts"
        self.taken = f"{self.run}:taken"
        self.histograms = f"{self.run}:histograms"
        self.errored = f"{self.run}:errored"
        self.history = f"{self.run}:history"

    def attempts(self, shard: str) -> str:
        """The record of the attempts at a shard. With an empty name, the prefix of all such keys."""
        return f"{self.run}:attempts:{shard}"

    def scores(self, shard: str) -> str:
        """The checkpoint of a shard."""
        return f"{self.run}:scores:{shard}"

    def of(self, shard: str = "") -> list[str]:
        """All keys, in the order that `lua/prelude.lua` expects."""
        places = [self.waiting, self.sent, self.running, self.failed, self.receipts]
        tallies = [self.histograms, self.errored, self.history]
        return [self.run, self.shards, *places, *tallies, self.attempts(shard), self.scores(shard), REFUSED]
