"""The base of all parts of the ledger: the connection, the scripts, the keys of a run, and its spec."""

from collections.abc import Iterable, Iterator
from importlib import resources
from itertools import islice
from typing import Any, TypeVar

import redis
from pydantic import TypeAdapter, ValidationError

from shardsift.fleet.errors import UsageError
from shardsift.fleet.process.settings import Settings
from shardsift.fleet.run.model import queue_of_run
from shardsift.fleet.run.spec import RunSpec, Shard

SHARD_JSON = TypeAdapter(Shard)
_T = TypeVar("_T")
_BATCH = 200  # shards per call: a script blocks Redis for all clients, for a few milliseconds with this many
_LUA = resources.files("shardsift.fleet.ledger") / "lua"


class LedgerBase:
    def __init__(self, client: redis.Redis, settings: Settings) -> None:
        self.redis = client
        self.lease_seconds = settings.lease_seconds
        self._only_run = settings.only_run
        self.is_embedded = (
            settings.redis_is_embedded
        )  # the Redis that `producer run` starts, in which each run has its own queue
        self._lease_ms = int(settings.lease_seconds * 1000)
        self._outage_ms = int(max(settings.lease_seconds / 2, 3 * settings.sweep_seconds) * 1000)
        self._max_attempts = settings.max_attempts
        self._max_errors = settings.max_errors
        self._checkpoint_bytes = settings.checkpoint_mib << 20
        prelude = (_LUA / "prelude.lua").read_text("utf-8")
        self._scripts = {
            script.name.removesuffix(".lua"): client.register_script(prelude + script.read_text("utf-8"))
            for script in _LUA.iterdir()
            if script.name != "prelude.lua"
        }

    def spec(self, run_id: str) -> RunSpec:
        """Read the spec of a run. Raises UsageError if the ledger does not have the run, or cannot read its spec."""
        spec = self.redis.hget(Keys(run_id).run, "spec")
        if spec is None:
            known = ", ".join(self.run_ids()[:5]) or "none"
            raise UsageError(f"The ledger has no run {run_id!r}. Newest runs: {known}.")
        return read_spec(run_id, spec)

    def message_queue(self, run_id: str, queue: str) -> str:
        """Return the queue of a run's messages. `queue` is the queue of its scorer.

        With the embedded Redis, each run has its own queue, so that messages of stopped runs do not fill it.
        """
        return queue_of_run(queue, run_id) if self.is_embedded else queue

    def run_ids(self) -> list[str]:
        """List the ids of all runs, newest first."""
        run_ids = [str(run_id) for run_id in self.redis.zrange(RUNS, 0, -1)][::-1]  # workers may not ZREVRANGE
        pipeline = self.redis.pipeline(transaction=False)
        for run_id in run_ids:
            pipeline.hexists(Keys(run_id).run, "spec")
        return [run_id for run_id, has_spec in zip(run_ids, pipeline.execute(), strict=True) if has_spec]

    def _run_script(self, name: str, keys: list[str], arguments: list[Any]) -> Any:
        return self._scripts[name](keys=keys, args=arguments)

    def _now_ms(self) -> int:
        return in_ms(self.redis.time())

    def _fields(self, key: str) -> dict[str, str]:
        return {str(name): str(value) for name, value in self.redis.hgetall(key).items()}


def in_ms(time: tuple[int, int]) -> int:
    """Convert the answer of Redis's TIME, in seconds and microseconds, to milliseconds."""
    seconds, microseconds = time
    return seconds * 1000 + microseconds // 1000


def batches(items: Iterable[_T]) -> Iterator[list[_T]]:
    remaining = iter(items)
    while batch := list(islice(remaining, _BATCH)):
        yield batch


def read_spec(run_id: str, spec: str | bytes) -> RunSpec:
    try:
        return RunSpec.from_json(spec)
    except ValidationError as error:
        wrong = error.errors()[0]
        field = ".".join(map(str, wrong["loc"]))
        raise UsageError(
            f"Run {run_id} was enqueued by another version of shardsift: this one cannot read its spec "
            f"({field}: {wrong['msg']})."
        ) from error


def refuse_other_version(client: redis.Redis) -> None:
    """Raise UsageError if another version of shardsift wrote the ledger.

    All processes of a fleet must have one version.
    """
    found = client.get(VERSION_KEY)  # text, because `connect` decodes responses
    if found not in (None, VERSION):
        raise UsageError(
            f"This Redis has the ledger of another version of shardsift (format {found!s}, and {VERSION} here). Install the same "
            "version everywhere, or set REDIS_URL to another database."
        )


# The keys in Redis. docs/architecture.md says what each of them holds.

PREFIX = "shardsift:"
VERSION_KEY, VERSION = PREFIX + "version", "2"  # of keys, specs and messages; raise it when they change
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
        self.left_out = f"{self.run}:left_out"
        self.counted = f"{self.run}:counted"

    def attempts(self, shard: str) -> str:
        """Return the key of a shard's attempts. For an empty name, return the prefix of all such keys."""
        return f"{self.run}:attempts:{shard}"

    def scores(self, shard: str) -> str:
        return f"{self.run}:scores:{shard}"

    def of(self, shard: str = "") -> list[str]:
        """Return the keys that every script gets, in the order that `lua/prelude.lua` expects."""
        states = [self.waiting, self.sent, self.running, self.failed, self.receipts]
        tallies = [self.histograms, self.errored]
        return [self.run, self.shards, *states, *tallies, self.attempts(shard), self.scores(shard), REFUSED]
