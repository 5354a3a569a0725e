"""The ledger: all reads and writes of the runs of a fleet.

The state of a shard goes `queued → running → done | failed`. Each transition is one atomic Lua script. All times are
from the clock of Redis, so workers' clocks do not matter. A claim lasts for one lease and carries a fencing token. If
a worker comes back after its lease expired and another worker claimed the shard, its token is stale and is refused.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict

import redis
from pydantic import TypeAdapter

from shardsift.fleet.errors import UsageError
from shardsift.fleet.ledger.attempts import Attempts
from shardsift.fleet.ledger.base import (
    FINISHED,
    REFUSED,
    RUNS,
    SHARD_JSON,
    VERSION,
    VERSION_KEY,
    Keys,
    batches,
    refuse_other_version,
)
from shardsift.fleet.ledger.connect import connect
from shardsift.fleet.ledger.records import Due, OpenRun, Publication, Steering
from shardsift.fleet.ledger.results import Results
from shardsift.fleet.process.redact import redacted
from shardsift.fleet.process.settings import Settings
from shardsift.fleet.process.wording import place_taken
from shardsift.fleet.run.receipt import Receipt
from shardsift.fleet.run.spec import RunSpec, Shard

_PUBLICATION = TypeAdapter(Publication)
_DUE_LIMIT = 1000  # shards that one answer lists, of those started before and of new ones
_MAX_DAMAGED = 3  # a shard whose stored files are damaged this often is failed: the storage is probably at fault
_DAMAGED = "damaged:"  # prefix of the run's fields that count how often a shard's files were damaged


class Ledger(Attempts, Results):
    """The runs of a fleet, in Redis. Safe to share between threads.

    Methods raise redis.RedisError if Redis does not answer.
    """

    @staticmethod
    def connect(settings: Settings, *, wait_seconds: float = 0.0) -> "Ledger":
        """Connect to the fleet's Redis, and wait up to `wait_seconds` for it. Writes nothing.

        Raises UsageError if Redis does not answer, refuses the connection, would delete keys when it is full, or holds
        the ledger of another version of shardsift.
        """
        client = connect(settings, wait_seconds=wait_seconds)
        refuse_other_version(client)
        return Ledger(client, settings)

    def create_run(self, spec: RunSpec, shards: Iterable[Shard], *, now: float) -> int:
        """Write a run and its new shards, and end a cancellation. Returns the number of new shards. May run twice."""
        added = self.add_shards(spec, shards, now=now)
        self.mark_enqueued(spec.run_id)
        return added

    def add_shards(self, spec: RunSpec, shards: Iterable[Shard], *, now: float) -> int:
        """Write a run and its new shards as `create_run` does, but do not mark the run as enqueued.

        Until `mark_enqueued`, no shard of a new run is sent or published.
        """
        keys = Keys(spec.run_id)
        self.redis.set(VERSION_KEY, VERSION)
        labels = {column: indices for column, indices in spec.charted.items() if indices[1] is not None}
        self.redis.hset(keys.run, mapping={"spec": spec.to_json(), "created": now, "charted": json.dumps(labels)})
        was_cancelled = self.redis.hdel(keys.run, "cancelled")
        self.redis.zadd(RUNS, {spec.run_id: now}, nx=True)
        added = 0
        for batch in batches(shards):
            fields = [part for shard in batch for part in (shard.name, SHARD_JSON.dump_json(shard))]
            added += self._run_script("add_shards", keys.of(), fields)
        if added or was_cancelled:
            self._note_queued(spec.run_id)
        return added

    def _note_queued(self, run_id: str) -> None:
        """Note that shards were queued now. Idle time before this does not make the run look stalled."""
        self.redis.hset(Keys(run_id).run, "queued_ms", self._now_ms())

    def mark_enqueued(self, run_id: str) -> None:
        """Note that all shards of a run and all receipts found for it are written. Also store the number of shards.

        This is the number in the ledger, not in the plan: an extension that is enqueued again keeps its shards whose
        files have gone.
        """
        keys = Keys(run_id)
        self.redis.hset(keys.run, mapping={"complete": 1, "shards": int(self.redis.hlen(keys.shards))})
        self.redis.delete(keys.taken)

    def take_receipts(self, run_id: str) -> list[Receipt]:
        """Set aside and return the receipts of a run that has lost keys in Redis, so that the caller can restore them.

        Until `mark_enqueued`, no shard of the run is sent or published, and a second call returns the same receipts. If
        no key is lost, changes nothing and returns an empty list.
        """
        keys = Keys(run_id)
        self._run_script("take_receipts", keys.of(), [keys.taken])
        return list(self._receipts(keys.taken))

    def restore(self, run_id: str, receipts: Iterable[Receipt]) -> int:
        """Record open, unclaimed shards as done, from receipts found with the output.

        Returns how many. May run twice.
        """
        restored = 0
        for batch in batches(receipts):
            fields = [part for receipt in batch for part in (receipt.shard, receipt.to_json())]
            restored += self._run_script("restore", Keys(run_id).of(), fields)
        return restored

    def open_runs(self) -> list[OpenRun]:
        """List runs with open shards, oldest first.

        Leaves out runs that are cancelled, paused or not completely enqueued.
        """
        run_ids = [run_id for run_id in self.run_ids()[::-1] if self._only_run in (None, run_id)]
        pipeline = self.redis.pipeline(transaction=False)
        for keys in map(Keys, run_ids):
            for key in (keys.waiting, keys.sent, keys.running):
                pipeline.zcard(key)
            pipeline.hmget(keys.run, "complete", "cancelled", "paused", "max_workers", "format")
        answers = pipeline.execute()
        states = zip(run_ids, *(answers[part::4] for part in range(4)), strict=True)
        opened = [
            (run_id, self._takeable(run_id, waiting + sent, max_workers), running, settled)
            for run_id, waiting, sent, running, (complete, cancelled, paused, max_workers, settled) in states
            if waiting + sent + running and complete and cancelled is None and paused is None
        ]
        return [
            OpenRun(run_id=run_id, spec=self.spec(run_id), queued=queued, running=running, number_format=settled)
            for run_id, queued, running, settled in opened
        ]

    def _takeable(self, run_id: str, queued: int, max_workers: str | None) -> int:
        if max_workers is None:
            return queued
        workers = {shard.worker for shard in self.running_shards(run_id)}
        return max(0, min(queued, int(max_workers) - len(workers)))

    def cancel(self, run_id: str, *, replaced_by: str = "") -> None:
        """Cancel a run, and end a pause. Workers stop at their next batch. `retry` or `create_run` resumes the run.

        All progress is kept. A publication that has already begun still succeeds. `replaced_by` is the id of the run that
        takes its output, if one does. Raises UsageError if the run is published.
        """
        if self._run_script("cancel", Keys(run_id).of(), [replaced_by]) == "published":
            raise UsageError(f"Run {run_id} is published: there is nothing left to cancel.")

    def pause(self, run_id: str, *, reason: str = "") -> None:
        """Pause a run until `resume`. No shard is claimed, and workers give their shards back at their next batch.

        All progress is kept. `reason` is empty if a person asked for the pause. A run that is already paused keeps its
        reason. Raises UsageError if the run is cancelled or published, or has no open shard.
        """
        match self._run_script("pause", Keys(run_id).of(), [reason]):
            case "cancelled":
                other = self.state(run_id).replaced_by
                advice = place_taken(other) if other else f"Resume it: producer retry {run_id}"
                raise UsageError(f"Run {run_id} is cancelled, so it is not paused. {advice}")
            case "published":
                raise UsageError(f"Run {run_id} is published: there is nothing left to pause.")
            case "over":
                raise UsageError(f"Run {run_id} has no open shard: there is nothing left to pause.")

    def resume(self, run_id: str) -> bool:
        """End a pause. Returns False if the run is not paused."""
        was_paused = bool(self.redis.hdel(Keys(run_id).run, "paused"))
        if was_paused:
            self._note_queued(run_id)
        return was_paused

    def settle_format(self, run_id: str, number_format: str) -> None:
        """Set the run's number format, taken from its finished shards. Does nothing if the run already has a format."""
        self.redis.hsetnx(Keys(run_id).run, "format", number_format)

    def steer(self, run_id: str, steering: Steering) -> None:
        """Set the run's limits. Workers above a lowered limit finish their shard first."""
        key, pipeline = Keys(run_id).run, self.redis.pipeline()
        for name, value in asdict(steering).items():
            if value is None:
                pipeline.hdel(key, name)
            else:
                pipeline.hset(key, name, str(value))
        pipeline.execute()

    def command(self, run_id: str) -> str | None:
        """Return the command that makes the same rows again. None if an earlier release enqueued the run."""
        return str(self.redis.hget(Keys(run_id).run, "command") or "") or None

    def set_command(self, run_id: str, command: str | None) -> None:
        if command is not None:
            self.redis.hset(Keys(run_id).run, "command", command)

    def evidence(self, run_id: str) -> str | None:
        return str(self.redis.hget(Keys(run_id).run, "evidence") or "") or None

    def set_evidence(self, run_id: str, evidence: str) -> None:
        self.redis.hset(Keys(run_id).run, "evidence", evidence)

    def retry(self, run_id: str, *, changed: Iterable[str] = ()) -> int:
        """Queue the failed shards again, with their attempts reset. Returns the number of queued shards.

        Also queues the done shards in `changed`, whose input files have changed. Ends a cancellation.
        """
        keys = Keys(run_id)
        self.redis.hdel(keys.run, "cancelled", "failed_attempts")
        self._note_queued(run_id)
        self.clear_publish_error(run_id)
        names = {*self.redis.smembers(keys.failed), *changed}
        return sum(self._run_script("retry", keys.of(), batch) for batch in batches(names))

    def requeue(self, run_id: str, damaged: Mapping[str, str], *, of: Iterable[Receipt] = ()) -> int:
        """Queue done shards again because their stored files are lost or damaged. `damaged` maps shards to reasons.

        Subtracts their rows from the totals. The run no longer counts as published. A shard that is found damaged three
        times is failed instead. `of` has the receipts that the caller has read: a shard whose data file is no longer the
        one in its receipt is skipped. Returns the number of shards that were queued or failed.
        """
        files = {receipt.shard: _data_file(receipt) for receipt in of}
        requeued = 0
        for batch in batches(damaged.items()):
            fields = [part for name, reason in batch for part in (name, reason, files.get(name, ""))]
            requeued += int(self._run_script("requeue", Keys(run_id).of(), [_MAX_DAMAGED, *fields]))
        if requeued:
            self._note_queued(run_id)
        return requeued

    def move_rows(self, run_id: str, moved: Iterable[tuple[Receipt, Receipt]]) -> int:
        """Record that rows of done shards were moved to other files. `moved` has each shard's old and new receipt.

        Skips shards that were queued or scored again meanwhile. Returns the number of shards recorded. May run twice.
        """
        recorded = 0
        for batch in batches(moved):
            fields = [part for before, now in batch for part in (now.shard, _data_file(before), now.to_json())]
            recorded += int(self._run_script("move_rows", Keys(run_id).of(), fields))
        return recorded

    def shards(self, run_id: str, names: Iterable[str] | None = None) -> Iterator[Shard]:
        """Yield the records of the shards with these names, or of all shards, in name order."""
        key = Keys(run_id).shards
        for batch in batches(sorted(map(str, self.redis.hkeys(key) if names is None else names))):
            for record in self.redis.hmget(key, batch):
                if record is not None:
                    yield SHARD_JSON.validate_json(record)

    def update_shards(self, run_id: str, shards: Iterable[Shard]) -> int:
        """Replace the records of shards that are not done. Returns how many changed."""
        changed = 0
        for batch in batches(shards):
            fields = [part for shard in batch for part in (shard.name, SHARD_JSON.dump_json(shard))]
            changed += int(self._run_script("update_shards", Keys(run_id).of(), fields))
        return changed

    def refused(self) -> dict[str, int]:
        """Count two kinds of recent events in all runs: refused receipts, and shards with lost or damaged files.

        A receipt is refused if its attempt no longer holds the shard. Redis deletes the counts a day after the last such event.
        """
        return {str(what): int(times) for what, times in sorted(self.redis.hgetall(REFUSED).items())}

    # --- Which shards need a message in the queue. `shardsift/fleet/dispatch.py` sends the messages. ---

    def take_due(self, run_id: str, *, room: int) -> Due:
        """Take the shards that need a message now, and mark them as sent.

        `room` limits the shards that were never started.
        """
        arguments = [room, _DUE_LIMIT, self._lease_ms, self._outage_ms, self._max_attempts]
        again, fresh = self._run_script("take_due", Keys(run_id).of(), arguments)
        return Due(again=again, fresh=fresh, more=max(len(again), len(fresh)) >= _DUE_LIMIT)

    def sent_before(self, run_id: str, *, seconds: float) -> list[str]:
        age_ms = self._now_ms() - int(seconds * 1000)
        return [str(name) for name in self.redis.zrangebyscore(Keys(run_id).sent, "-inf", age_ms)]

    def queue_again(self, run_id: str, shards: Iterable[str], *, seconds: float) -> list[str]:
        """Queue each of these shards again if its message was sent at least `seconds` ago.

        Returns the names of the queued ones.
        """
        age_ms = int(seconds * 1000)
        return [
            name
            for batch in batches(shards)
            for name in self._run_script("queue_again", Keys(run_id).of(), [age_ms, *batch])
        ]

    def forget_messages(self, run_id: str) -> None:
        """Queue every open shard again, even a leased one. Call this only if all workers and messages are gone.

        Running attempts count as stopped, not as crashed, because their workers were stopped on purpose.
        """
        self._run_script("forget_messages", Keys(run_id).of(), [])

    # --- What a finalizer notes about a run. What is published is known only from the output itself. ---

    def wait_for_finished_run(self, seconds: float) -> bool:
        """Wait up to `seconds` until a worker has finished the last shard of a run. Returns False after a timeout.

        A worker wakes only one finalizer. If that finalizer dies, the wake is lost, so also check the runs from time to
        time.
        """
        try:
            is_woken = self.redis.brpop([FINISHED], timeout=seconds) is not None
        except redis.ResponseError:  # the key holds a value of another type
            is_woken = True
        if is_woken:
            self.redis.delete(FINISHED)
        return is_woken

    def begin_publishing(self, run_id: str) -> int | None:
        """Note that a publication begins. Returns the version of the receipts, or None if the run is cancelled.

        Read the receipts after this call. A later cancellation does not stop the publication; instead, the publication
        ends the cancellation.
        """
        version = self._run_script("begin_publishing", Keys(run_id).of(), [])
        return None if version is None else int(version)

    def has_receipts_of(self, run_id: str, version: int | None) -> bool:
        """Return whether the receipts are unchanged since `begin_publishing` returned `version`.

        True if `version` is None.
        """
        return version in (None, int(self.redis.hget(Keys(run_id).run, "receipts_version") or 0))

    def is_publishing(self, run_id: str) -> bool:
        """Return whether a publication has begun and its end is not recorded. Its finalizer may be dead."""
        return bool(self.redis.hexists(Keys(run_id).run, "publishing_ms"))

    def end_publishing(self, run_id: str) -> None:
        """Note that a publication is over and nothing was published. First inspect the output, to be sure that this is so."""
        self.redis.hdel(Keys(run_id).run, "publishing_ms")

    def record_publication(self, run_id: str, publication: Publication, *, version: int | None = None) -> bool:
        """Record a publication. Ends a cancellation that arrived meanwhile.

        Returns False if the receipts no longer have this `version`. The run is then not published, and a sweep tries
        again.
        """
        arguments = [_PUBLICATION.dump_json(publication), "" if version is None else version]
        return bool(self._run_script("record_publication", Keys(run_id).of(), arguments) == "recorded")

    def withdraw_publication(self, run_id: str) -> None:
        """Note that the output no longer holds what was published."""
        self.redis.hdel(Keys(run_id).run, "published")

    def may_publish(self, run_id: str) -> bool:
        """Return whether to try publishing now.

        False after a permanent error, or during a wait that a service asked for.
        """
        failed, after_ms = self.redis.hmget(Keys(run_id).run, "publish_failed", "publish_after_ms")
        return failed is None and int(after_ms or 0) <= self._now_ms()

    def record_publish_error(
        self, run_id: str, error: str, *, is_permanent: bool = False, retry_after_seconds: float | None = None
    ) -> None:
        key, pipeline = Keys(run_id).run, self.redis.pipeline()
        pipeline.hdel(key, "publish_failed", "publish_after_ms")
        pipeline.hset(key, "publish_error", redacted(error))
        if is_permanent:
            pipeline.hset(key, "publish_failed", 1)
        if retry_after_seconds:
            pipeline.hset(key, "publish_after_ms", self._now_ms() + int(retry_after_seconds * 1000))
        pipeline.execute()

    def clear_publish_error(self, run_id: str) -> None:
        """Forget why publishing failed and how often files were damaged.

        Call it when a person asks to publish again.
        """
        key = Keys(run_id).run
        damaged = [field for field in map(str, self.redis.hkeys(key)) if field.startswith(_DAMAGED)]
        self.redis.hdel(key, "publish_error", "publish_failed", "publish_after_ms", *damaged)


def _data_file(receipt: Receipt) -> str:
    """Return the identifier of a receipt's data file that `has_file` in lua/prelude.lua compares."""
    return f"{receipt.data.staged_path} {receipt.data.sha256}"
