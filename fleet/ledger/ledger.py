"""All reads and writes of the runs of a fleet, and in a ledger of their own of its trainings.

The state of a shard goes `queued → running → done | failed`. Each transition is one Lua script, so it is atomic, and it
uses the clock of Redis, so workers' clocks do not matter. A claim lasts for one lease and carries a fencing token. If a
worker comes back after its lease expired and another worker claimed the shard, its token is stale and is refused.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, fields, replace
from importlib import resources
from itertools import islice
from typing import Any, Generic, Protocol, TypeVar, cast
from uuid import uuid4

import redis
from pydantic import TypeAdapter, ValidationError

from fleet.attempt_report import AttemptReport, Phase
from fleet.errors import Cancelled, LeaseLost, NewerVersion, RunUnknown, UsageError
from fleet.histogram import Histogram, empty_histogram
from fleet.ledger.connect import connect
from fleet.ledger.history import HistoryPoint, read_history
from fleet.ledger.keys import REFUSED, Keys, index
from fleet.ledger.kinds import RUN, TRAINING, Kind, S
from fleet.ledger.pace import Pace, read_pace
from fleet.ledger.records import (
    Claim,
    Counts,
    Due,
    Failure,
    LostLease,
    OpenRun,
    Outcome,
    Publication,
    Refusal,
    RunningShard,
    Steering,
)
from fleet.ledger.rights import Role, check_rights
from fleet.receipt import Receipt
from fleet.redact import redacted
from fleet.settings import Settings
from fleet.shard import Shard
from fleet.spec import RunSpec
from fleet.training.task import FleetTraining

_SHARD = TypeAdapter(Shard)
_PUBLICATION = TypeAdapter(Publication)
_STEERING = TypeAdapter(Steering)
_T = TypeVar("_T")
_BATCH = 200  # shards per call: a script blocks Redis for all clients, here for a few milliseconds
_DUE_LIMIT = 1000  # shards of each kind in one answer
_BACKOFF_SECONDS = 5.0  # after the first error; each further error multiplies it by four
_MAX_BACKOFF_SECONDS = 600.0
_DAMAGED = "damaged:"  # prefix of the run's fields that count how often a shard's stored files were found damaged
_DEVICE_MS = "device_ms:"  # prefix of the run's fields with the part of worker_ms that each kind of device took
_MAX_DAMAGED = 3  # a shard whose stored files were found damaged this often is failed: the storage is probably at fault
_REFUSED_MS = 86_400_000  # as in lua/prelude.lua
_ROWS = ("rows_in", "rows_kept", "rows_dropped", "rows_errored")
_SCRIPTS = (
    *("add_shards", "claim", "renew", "save_scores", "complete", "end_attempt"),
    *(
        "take_due",
        "queue_again",
        "withdraw",
        "forget_messages",
        "retry",
        "restore",
        "requeue",
        "remember",
        "update_shards",
    ),
    *("cancel", "pause", "begin_publishing", "record_publication"),
)


class Written(Protocol):
    """What is recorded of a shard that is done: a Receipt, or what a training says of its model."""

    def to_json(self) -> bytes: ...


class Ledger(Generic[S]):
    """Cheap to create, and safe to share between threads. Methods raise redis.RedisError if Redis does not answer.

    It has the entries of one kind, by default runs.
    """

    def __init__(
        self,
        client: redis.Redis,
        *,
        kind: Kind[S] | None = None,
        lease_seconds: float = 60.0,
        sweep_seconds: float = 15.0,
        max_attempts: int = 3,
        max_errors: int = 8,
        checkpoint_bytes: int = 512 << 20,
    ) -> None:
        self.redis = client
        self.kind = kind or cast("Kind[S]", RUN)
        self.lease_seconds = lease_seconds
        self._sweep_seconds = sweep_seconds
        self._lease_ms = int(lease_seconds * 1000)
        self._outage_ms = int(max(lease_seconds / 2, 3 * sweep_seconds) * 1000)
        self._max_attempts = max_attempts
        self._max_errors = max_errors
        self._checkpoint_bytes = checkpoint_bytes
        prelude = _lua("prelude")
        self._scripts = {name: client.register_script(prelude + _lua(name)) for name in _SCRIPTS}

    @staticmethod
    def connect(settings: Settings, *, wait_seconds: float = 0.0, role: Role | None = None) -> "Ledger":
        """Connect to the fleet's Redis. Raises UsageError if it is missing for this long, or refuses the connection.

        Also raises UsageError if its user lacks rights that the `role` needs, before anything is written.
        """
        client = connect(settings, wait_seconds=wait_seconds)
        if role:
            check_rights(client, role)
        return Ledger(
            client,
            lease_seconds=settings.lease_seconds,
            sweep_seconds=settings.sweep_seconds,
            max_attempts=settings.max_attempts,
            max_errors=settings.max_errors,
            checkpoint_bytes=settings.checkpoint_mib << 20,
        )

    @property
    def trainings(self) -> "Ledger[FleetTraining]":
        """The ledger of the same fleet's trainings."""
        return Ledger(
            self.redis,
            kind=TRAINING,
            lease_seconds=self.lease_seconds,
            sweep_seconds=self._sweep_seconds,
            max_attempts=self._max_attempts,
            max_errors=self._max_errors,
        )

    # --- runs -------------------------------------------------------------------------------------------------------

    def create_run(self, spec: S, shards: Iterable[Shard], *, now: float) -> int:
        """Write a run and its new shards. Returns the number of new shards. May run twice. Ends a cancellation."""
        added = self.add_shards(spec, shards, now=now)
        self.mark_enqueued(spec.run_id)
        return added

    def add_shards(self, spec: S, shards: Iterable[Shard], *, now: float) -> int:
        """As `create_run`, without marking the run as enqueued: no shard is sent or published before `mark_enqueued`."""
        keys = self._keys(spec.run_id)
        self.redis.hset(keys.run, mapping={"spec": spec.to_json(), "created": now})
        self.redis.hdel(keys.run, "cancelled")
        self.redis.zadd(index(self.kind.noun), {spec.run_id: now}, nx=True)
        added = 0
        for batch in _batches(shards):
            fields = [part for shard in batch for part in (shard.name, _SHARD.dump_json(shard))]
            added += self._run_script("add_shards", keys.of(), fields)
        return added

    def mark_enqueued(self, run_id: str) -> None:
        """Note that all shards of the run are written, together with the receipts that were found."""
        self.redis.hset(self._keys(run_id).run, "complete", 1)

    def is_enqueued(self, run_id: str) -> bool:
        """Whether enqueueing finished. A producer may have died midway."""
        return bool(self.redis.hexists(self._keys(run_id).run, "complete"))

    def restore(self, run_id: str, receipts: Iterable[Receipt]) -> int:
        """Record shards as done from receipts that were found with the output, if the shards are open and unclaimed.

        Returns the number of shards recorded. May run twice.
        """
        keys = self._keys(run_id)
        prefixes = [keys.attempts(""), keys.scores("")]
        restored = 0
        for batch in _batches(receipts):
            fields = _named(batch)
            restored += self._run_script("restore", keys.of(), [*prefixes, *fields])
        return restored

    def run_ids(self) -> list[str]:
        """All runs, newest first."""
        return self._ordered(index(self.kind.noun))[::-1]

    def open_runs(self) -> list[OpenRun[S]]:
        """The runs with open shards, oldest first, without cancelled, paused and half-enqueued ones.

        Skips a run whose spec a newer version wrote, if this version cannot read it.
        """
        run_ids = self.run_ids()[::-1]
        pipeline = self.redis.pipeline(transaction=False)
        for keys in map(self._keys, run_ids):
            for key in (keys.waiting, keys.sent, keys.running):
                pipeline.zcard(key)
            pipeline.hmget(keys.run, "complete", "cancelled", "paused", "max_workers", "priority")
        answers = pipeline.execute()
        states = zip(run_ids, *(answers[part::4] for part in range(4)), strict=True)
        opened = [
            (run_id, _takeable(waiting + sent, running, max_workers), running, int(priority or 0))
            for run_id, waiting, sent, running, (complete, cancelled, paused, max_workers, priority) in states
            if waiting + sent + running and complete and not cancelled and paused is None
        ]
        return [
            OpenRun(run_id=run_id, spec=spec, queued=queued, running=running, priority=priority)
            for run_id, queued, running, priority in opened
            if (spec := self.readable_spec(run_id))
        ]

    def readable_spec(self, run_id: str) -> S | None:
        """The spec of a run. None if a newer version wrote it, and this one cannot read it. Raises UsageError as `spec` does."""
        try:
            return self.spec(run_id)
        except NewerVersion:
            return None

    def spec(self, run_id: str) -> S:
        """The spec of a run. Raises UsageError if the ledger does not have the run, NewerVersion if it cannot be read."""
        spec = self.redis.hget(self._keys(run_id).run, "spec")
        if spec is None:
            known = ", ".join(self.run_ids()[:5]) or "none"
            noun = self.kind.noun
            raise UsageError(f"The ledger has no {noun} {run_id!r}. Newest {noun}s: {known}.")
        return _read_spec(self.kind, run_id, spec)

    def counts(self, run_id: str) -> Counts:
        keys = self._keys(run_id)
        pipeline = self.redis.pipeline()
        for key in (keys.waiting, keys.sent, keys.running):
            pipeline.zcard(key)
        pipeline.hlen(keys.receipts)
        pipeline.scard(keys.failed)
        pipeline.hlen(keys.shards)
        pipeline.hgetall(keys.run)
        pipeline.zrange(keys.running, 0, -1)
        pipeline.time()
        waiting, sent, running, done, failed, shards, run, names, (now, _) = pipeline.execute()
        return Counts(
            shards=shards,
            queued=waiting + sent,
            running=running,
            done=done,
            failed=failed,
            rows_running=sum(int(rows or 0) for rows in self._attempts_fields(keys, names, "rows")),
            worker_seconds=int(run.get("worker_ms", 0)) / 1000,
            device_seconds=_device_seconds(run),
            stored_bytes=int(run.get("stored_bytes", 0)),
            waves=int(run.get("waves", 0)),
            last_wave_seconds=max(0.0, now - int(run["wave_ms"]) / 1000) if "wave_ms" in run else None,
            tokens=int(run.get("tokens", 0)),
            phase_seconds={phase: int(run.get(f"phase_ms:{phase}", 0)) / 1000 for phase in Phase},
            seconds=_run_seconds(run, open_shards=waiting + sent + running, now=now),
            **{field: int(run.get(field, 0)) for field in _ROWS},
        )

    def running_shards(self, run_id: str) -> list[RunningShard]:
        """The shards that workers hold now, in the order in which their leases end."""
        keys = self._keys(run_id)
        ends: Any = self.redis.zrange(keys.running, 0, -1, withscores=True)
        ends_ms = {str(name): float(end_ms) for name, end_ms in ends}
        pipeline = self.redis.pipeline()
        for name in ends_ms:
            pipeline.hmget(keys.attempts(name), "owner", "rows", "attempts", "noted_ms", "report")
        pipeline.time()
        *found, (seconds, microseconds) = pipeline.execute()
        now_ms = int(seconds) * 1000 + int(microseconds) // 1000
        return [
            RunningShard(
                name=name,
                worker=owner or "",
                rows=int(rows or 0),
                attempt=int(attempt or 1),
                seen_seconds=max(0.0, (now_ms - int(noted_ms or now_ms)) / 1000),
                lease_seconds_left=max(0.0, (ends_ms[name] - now_ms) / 1000),
                report=AttemptReport.from_json(report),
            )
            for name, (owner, rows, attempt, noted_ms, report) in zip(ends_ms, found, strict=True)
        ]

    def pace(self, run_id: str) -> Pace:
        """How fast the run is, or was."""
        keys = self._keys(run_id)
        pipeline = self.redis.pipeline()
        for key in (keys.waiting, keys.sent, keys.running):
            pipeline.zcard(key)
        pipeline.hgetall(keys.run)
        pipeline.time()
        *open_shards, run, (seconds, microseconds) = pipeline.execute()
        now_ms = int(seconds) * 1000 + int(microseconds) // 1000
        end_ms = now_ms if any(open_shards) else int(run.get("finished_ms", now_ms))
        return read_pace(run, now_ms=now_ms, end_ms=end_ms)

    def history(self, run_id: str) -> list[HistoryPoint]:
        """What the run was doing over time, oldest first. It stays when the run has ended."""
        return read_history(self._fields(self._keys(run_id).history))

    def histograms(self: "Ledger[RunSpec]", run_id: str) -> dict[str, Histogram]:
        """How the scores of the shards that are done are spread, by score column."""
        empty = {
            scoring.score_column: empty_histogram(scoring.function_to_apply) for scoring in self.spec(run_id).scorings
        }
        rows_by_bin: dict[str, dict[int, int]] = {column: {} for column in empty}
        for field, rows in self._fields(self._keys(run_id).histograms).items():
            number, _, column = field.partition(":")
            if column in empty and int(rows) > 0:
                rows_by_bin[column][int(number)] = int(rows)
        return {
            column: replace(histogram, rows_by_bin=dict(sorted(rows_by_bin[column].items())))
            for column, histogram in empty.items()
        }

    def error_reasons(self, run_id: str) -> dict[str, int]:
        """Why rows of the shards that are done are errored: reason → rows, most rows first."""
        rows = {reason: int(rows) for reason, rows in self._fields(self._keys(run_id).errored).items()}
        return dict(sorted(rows.items(), key=lambda one: (-one[1], one[0])))

    def cancel(self, run_id: str) -> None:
        """Cancel a run: workers stop at their next batch. All progress is kept, and `retry` or `create_run` resumes the run.

        Ends a pause. Raises UsageError if the run is published. A publication that has already begun still succeeds.
        """
        if self._run_script("cancel", self._keys(run_id).of(), []) == "published":
            raise UsageError(f"Run {run_id} is published: there is nothing left to cancel.")

    def is_cancelled(self, run_id: str) -> bool:
        return bool(self.redis.hexists(self._keys(run_id).run, "cancelled"))

    def pause(self, run_id: str, *, reason: str = "") -> None:
        """Pause a run: no shard is claimed, and workers give theirs back at their next batch. `resume` ends it.

        All progress is kept. `reason` is empty if a person asked for it; a run that is paused already keeps the earlier
        one. Raises UsageError if the run is cancelled or has no open shard.
        """
        match self._run_script("pause", self._keys(run_id).of(), [reason]):
            case "cancelled":
                noun = self.kind.noun.capitalize()
                raise UsageError(
                    f"{noun} {run_id} is cancelled, so it is not paused. Resume it: producer retry {run_id}"
                )
            case "published":
                raise UsageError(f"Run {run_id} is published: there is nothing left to pause.")
            case "over":
                raise UsageError(
                    f"{self.kind.noun.capitalize()} {run_id} has no open shard: there is nothing left to pause."
                )

    def resume(self, run_id: str) -> bool:
        """End a pause. Returns False if the run is not paused."""
        return bool(self.redis.hdel(self._keys(run_id).run, "paused"))

    def pause_reason(self, run_id: str) -> str | None:
        """Why the run is paused, empty if a person asked for it. None if it is not paused."""
        reason = self.redis.hget(self._keys(run_id).run, "paused")
        return None if reason is None else str(reason)

    def steering(self, run_id: str) -> Steering:
        """How fast, how soon and for how much the run is to be scored."""
        names = [field.name for field in fields(Steering)]
        found = zip(names, self.redis.hmget(self._keys(run_id).run, *names), strict=True)
        return _STEERING.validate_python({name: value for name, value in found if value is not None})

    def steer(self, run_id: str, steering: Steering) -> None:
        """Set that. Workers above a lower limit finish the shards that they have."""
        key, pipeline = self._keys(run_id).run, self.redis.pipeline()
        for name, value in asdict(steering).items():
            if value is None:
                pipeline.hdel(key, name)
            else:
                pipeline.hset(key, name, value)
        pipeline.execute()

    def retry(self, run_id: str, *, done_too: bool = False) -> int:
        """Queue the failed shards again, with their attempts reset, and end a cancellation. Returns the number of shards.

        With `done_too`, done shards are scored again too, for outputs that were lost before they were published.
        """
        keys = self._keys(run_id)
        self.redis.hdel(keys.run, "cancelled")
        self.clear_publish_error(run_id)
        names = [*self.redis.smembers(keys.failed), *(self.redis.hkeys(keys.receipts) if done_too else ())]
        prefix = keys.attempts("")
        return sum(self._run_script("retry", keys.of(), [prefix, *batch]) for batch in _batches(names))

    def requeue(self, run_id: str, damaged: Mapping[str, str], *, of: Iterable[Receipt] = ()) -> int:
        """Queue done shards again whose stored files are lost or damaged. `damaged` maps their names to the reason.

        Their rows leave the totals, and the run is no longer published. The next claim gets the old receipt as `previous`.
        A shard that is found damaged three times is failed. A shard that was scored again after the receipts `of` were
        read is skipped. Returns the number of shards that were queued or failed.
        """
        keys = self._keys(run_id)
        files = {receipt.shard: f"{receipt.data.staged_path} {receipt.data.sha256}" for receipt in of}
        requeued = 0
        for batch in _batches(damaged.items()):
            fields = [part for name, reason in batch for part in (name, reason, files.get(name, ""))]
            requeued += int(self._run_script("requeue", keys.of(), [keys.attempts(""), _MAX_DAMAGED, *fields]))
        return requeued

    def remember(self, run_id: str, receipts: Iterable[Receipt]) -> int:
        """Note the receipts of earlier attempts, whose files exist in part, for open shards. Returns how many were noted."""
        keys = self._keys(run_id)
        return sum(
            int(self._run_script("remember", keys.of(), [keys.attempts(""), *_named(batch)]))
            for batch in _batches(receipts)
        )

    def shards(self, run_id: str, names: Iterable[str] | None = None) -> Iterator[Shard]:
        """The records of the named shards, by default of all, in name order."""
        key = self._keys(run_id).shards
        for batch in _batches(sorted(map(str, self.redis.hkeys(key) if names is None else names))):
            for record in self.redis.hmget(key, batch):
                if record is not None:
                    yield _SHARD.validate_json(record)

    def update_shards(self, run_id: str, shards: Iterable[Shard]) -> int:
        """Replace the records of shards that are not done. Returns how many changed."""
        changed = 0
        for batch in _batches(shards):
            fields = [part for shard in batch for part in (shard.name, _SHARD.dump_json(shard))]
            changed += int(self._run_script("update_shards", self._keys(run_id).of(), fields))
        return changed

    def forget_messages(self, run_id: str) -> None:
        """Queue every open shard again, even if it is leased. Call this only if all workers and messages are gone.

        A running attempt counts as stopped, because its worker was ended on purpose.
        """
        keys = self._keys(run_id)
        self._run_script("forget_messages", keys.of(), [keys.attempts("")])

    def take_due(self, run_id: str, *, room: int) -> Due:
        """The shards that need a message now. They count as sent from here on. `room` limits the shards never tried."""
        keys = self._keys(run_id)
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
        return [str(name) for name in self.redis.zrangebyscore(self._keys(run_id).sent, "-inf", age_ms)]

    def queue_again(self, run_id: str, shards: Iterable[str], *, seconds: float) -> list[str]:
        """Queue shards again whose message is lost, if it was sent at least this many seconds ago. Returns their names."""
        age_ms = int(seconds * 1000)
        return [
            name
            for batch in _batches(shards)
            for name in self._run_script("queue_again", self._keys(run_id).of(), [age_ms, *batch])
        ]

    def withdraw(self, run_id: str, shards: Iterable[str]) -> None:
        """Let sent shards wait again whose messages were removed from the queue. May run twice."""
        keys = self._keys(run_id)
        for batch in _batches(shards):
            self._run_script("withdraw", keys.of(), [keys.attempts(""), *batch])

    # --- one shard --------------------------------------------------------------------------------------------------

    def claim(self, run_id: str, shard_name: str, owner: str, *, nonce: str | None = None) -> Claim[S] | Refusal:
        """Claim a shard for one lease. No two workers ever hold the same shard with valid tokens.

        `owner` names the worker. A worker runs one scoring process at a time, so a second claim by the same owner means
        that the first process crashed. The exception is a second claim with the same `nonce`, from `new_nonce`: it
        returns the first claim again, so a caller whose answer was lost can repeat the call.

        Raises NewerVersion, before it claims anything, for a run whose spec this version cannot read.
        """
        spec = self.redis.hget(self._keys(run_id).run, "spec")
        if spec is not None:
            _read_spec(self.kind, run_id, spec)
        answer = self._run_script(
            "claim",
            self._keys(run_id).of(shard_name),
            [shard_name, owner, self._lease_ms, self._max_attempts, nonce or new_nonce()],
        )
        if answer[0] != "claimed":
            return Refusal(answer[0])
        _, token, attempt, spilled, shard, spec, previous = answer
        return Claim(
            run_id=run_id,
            shard=_SHARD.validate_json(shard),
            spec=_read_spec(self.kind, run_id, spec),
            token=token,
            attempt=int(attempt),
            noun=self.kind.noun,
            spilled=bool(spilled),
            previous=_readable_receipt(previous),
        )

    def renew(self, claim: Claim[S], *, rows: int, report: AttemptReport | None = None) -> bool:
        """Extend the lease, and note the number of rows scored so far and what else the worker says of its attempt.

        Returns False if the run is paused: give the shard back.

        Raises LeaseLost if the claim is no longer valid, and RunUnknown if Redis has lost the run.
        """
        said = report.to_json() if report else ""
        answer = self._run_script(
            "renew", self._claimed_keys(claim), [claim.shard.name, claim.token, self._lease_ms, rows, said]
        )
        if answer == "unknown":
            raise self._unknown(claim)
        held = f"{claim.what_in_full} is no longer held by this worker"
        if answer == "cancelled":
            raise Cancelled(f"{held}: the {claim.noun} was cancelled.")
        if answer not in ("renewed", "paused"):
            raise LeaseLost(f"{held}: another attempt took it over.")
        return bool(answer == "renewed")

    def save_scores(self, claim: Claim[S], window: int, scores: bytes) -> bool:
        """Store the scores of a window, for an attempt that resumes the shard. False if the run's checkpoints are full.

        `window` is the first row of the window. Saving a window again replaces it. Raises LeaseLost for a stale token.
        """
        arguments = [claim.shard.name, claim.token, window, scores, self._checkpoint_bytes]
        answer = self._run_script("save_scores", self._claimed_keys(claim), arguments)
        if answer == "lost":
            raise LeaseLost(f"Shard {claim.shard.name} of {claim.run_id} is no longer held by this worker.")
        return bool(answer == "saved")

    def saved_scores(self, claim: Claim[S]) -> dict[int, bytes]:
        """The scores of the windows that earlier attempts finished, by first row."""
        key = self._keys(claim.run_id).scores(claim.shard.name)
        found = self.redis.execute_command("HGETALL", key, NEVER_DECODE=True)  # type: ignore[no-untyped-call]
        return {int(window): scores for window, scores in found.items()}

    def complete(self, claim: Claim[S], receipt: Written) -> int:
        """Record a shard as done. Returns the number of shards that are still open.

        Raises LeaseLost for a stale token, and RunUnknown if Redis has lost the run.
        """
        arguments = [claim.shard.name, claim.token, receipt.to_json()]
        answer, still_open = self._run_script("complete", self._claimed_keys(claim), arguments)
        if answer == "unknown":
            raise self._unknown(claim)
        if answer == "lost":
            raise LeaseLost(f"{claim.what_in_full} was finished by another attempt.")
        return int(still_open)

    def is_done(self, claim: Claim[S]) -> bool:
        return bool(self.redis.hexists(self._keys(claim.run_id).receipts, claim.shard.name))

    def release(self, claim: Claim[S]) -> None:
        """Give a shard back after a stop. The attempt does not count."""
        self._end_attempt(claim, Outcome.STOPPED)

    def retry_later(self, claim: Claim[S], error: str, traceback: str, *, after_seconds: float | None = None) -> int:
        """Give a shard back after a transient error. After `max_errors` of them the shard is failed.

        The back-off is 5, 20, 80, … s, and at least `after_seconds`, if a service asked for that. Returns the number of
        shards that are still open.
        """
        return self._end_attempt(claim, Outcome.ERROR, error, traceback, least_seconds=after_seconds or 0)

    def record_crash(self, claim: Claim[S], error: str, traceback: str) -> int:
        """Give a shard back after an unexpected error, which counts as a crash. After `max_attempts` crashes it is failed.

        Returns the number of shards that are still open.
        """
        return self._end_attempt(claim, Outcome.CRASH, error, traceback)

    def fail(self, claim: Claim[S], error: str, traceback: str) -> int:
        """Record a non-retryable shard as failed. Returns the number of shards that are still open."""
        return self._end_attempt(claim, Outcome.NON_RETRYABLE, error, traceback)

    def report_crash(self, run_id: str, shard_name: str, owner: str, error: str, traceback: str = "") -> int:
        """Note that the process that scored a shard for `owner` died. The shard need not wait for its lease to expire.

        Does nothing if that owner does not hold the shard. Returns the number of shards that are still open.
        """
        arguments = self._end_arguments("owner", owner, Outcome.CRASH, error, traceback, backoff_seconds=0)
        _, still_open = self._run_script("end_attempt", self._keys(run_id).of(shard_name), [shard_name, *arguments, 0])
        return int(still_open)

    def _end_attempt(
        self, claim: Claim[S], outcome: Outcome, error: str = "", traceback: str = "", *, least_seconds: float = 0
    ) -> int:
        arguments = self._end_arguments("token", claim.token, outcome, error, traceback, _BACKOFF_SECONDS)
        least_ms = int(least_seconds * 1000)
        _, still_open = self._run_script(
            "end_attempt", self._claimed_keys(claim), [claim.shard.name, *arguments, least_ms]
        )
        return int(still_open)

    def _end_arguments(
        self, by: str, whose: str, outcome: Outcome, error: str, traceback: str, backoff_seconds: float
    ) -> list[Any]:
        backoff = [int(backoff_seconds * 1000), int(_MAX_BACKOFF_SECONDS * 1000)]
        return [
            by,
            whose,
            outcome,
            redacted(error),
            redacted(traceback),
            *backoff,
            self._max_attempts,
            self._max_errors,
        ]

    # --- results and publication --------------------------------------------------------------------------------------------

    def recorded(self, run_id: str, shard: str) -> str | None:
        """What is recorded of a shard that is done, as it was written. None if it is not done."""
        found = self.redis.hget(self._keys(run_id).receipts, shard)
        return None if found is None else str(found)

    def receipts(self, run_id: str) -> Iterator[Receipt]:
        """The receipts of all done shards, in name order."""
        keys = self._keys(run_id)
        names = sorted(str(name) for name in self.redis.hkeys(keys.receipts))
        for batch in _batches(names):
            for receipt in self.redis.hmget(keys.receipts, batch):
                if receipt is not None:  # `retry --all` may remove one while this reads
                    yield Receipt.from_json(receipt)

    def some_receipts(self, run_id: str, most: int) -> list[Receipt]:
        """The receipts of up to this many done shards, chosen at random."""
        found: Any = self.redis.hrandfield(self._keys(run_id).receipts, most, withvalues=True)
        return [Receipt.from_json(receipt) for receipt in found[1::2]]

    def failures(self, run_id: str, *, most: int | None = None) -> list[Failure]:
        """The dead-letter list: the failed shards in name order, all of them or the first ones."""
        names = sorted(str(name) for name in self.redis.smembers(self._keys(run_id).failed))[:most]
        return self._failed_attempts(run_id, names)

    def retries(self, run_id: str, *, most: int) -> list[Failure]:
        """The shards that wait for another attempt after one that ended badly. Those due next come first."""
        waiting = self.redis.zrangebyscore(self._keys(run_id).waiting, "(0", "+inf", start=0, num=most)
        found = self._failed_attempts(run_id, [str(name) for name in waiting])
        return [failure for failure in found if failure.error]  # a stop leaves none

    def _failed_attempts(self, run_id: str, names: list[str]) -> list[Failure]:
        keys, pipeline = self._keys(run_id), self.redis.pipeline()
        for name in names:
            pipeline.hmget(keys.attempts(name), "error", "traceback", "worker", "attempts", "crashes", "errors")
        return [
            Failure(
                shard=name,
                error=error or "",
                traceback=traceback or "",
                worker=worker or "",
                attempts=int(attempts or 0),
                crashes=int(crashes or 0),
                errors=int(errors or 0),
            )
            for name, (error, traceback, worker, attempts, crashes, errors) in zip(
                names, pipeline.execute(), strict=True
            )
        ]

    def publication(self, run_id: str) -> Publication | None:
        published = self.redis.hget(self._keys(run_id).run, "published")
        return _PUBLICATION.validate_json(published) if published else None

    def begin_publishing(self, run_id: str) -> int | None:
        """Begin a publication. Returns the version of the receipts, or None if the run is cancelled.

        Read the receipts after this call. A later cancellation does not stop the publication; it is ended by it.
        """
        version = self._run_script("begin_publishing", self._keys(run_id).of(), [])
        return None if version is None else int(version)

    def is_publishing(self, run_id: str) -> bool:
        """Whether a finalizer has begun a publication and not yet reported its end. It may be working, or dead."""
        return bool(self.redis.hexists(self._keys(run_id).run, "publishing_ms"))

    def end_publishing(self, run_id: str) -> None:
        """Note that the publication that was begun did not happen, after looking at the output."""
        self.redis.hdel(self._keys(run_id).run, "publishing_ms")

    def record_publication(self, run_id: str, publication: Publication, *, version: int | None = None) -> bool:
        """Record what was published. Ends a cancellation that arrived meanwhile.

        Returns False if the receipts no longer have this `version`. Then the run is not published, and a sweep asks again.
        """
        arguments = [_PUBLICATION.dump_json(publication), "" if version is None else version]
        return bool(self._run_script("record_publication", self._keys(run_id).of(), arguments) == "recorded")

    def withdraw_publication(self, run_id: str) -> None:
        """Note that the output no longer holds what was published."""
        self.redis.hdel(self._keys(run_id).run, "published")

    def publish_error(self, run_id: str) -> str | None:
        """Why the last attempt to publish failed."""
        error = self.redis.hget(self._keys(run_id).run, "publish_error")
        return None if error is None else str(error)

    def publish_failed(self, run_id: str) -> bool:
        """Whether that error is permanent. Then the finalizer does not publish again until a person asks for it."""
        return bool(self.redis.hexists(self._keys(run_id).run, "publish_failed"))

    def may_publish(self, run_id: str) -> bool:
        """Whether to publish now: the last error was not permanent, and the time that a service asked to wait is over."""
        failed, after_ms = self.redis.hmget(self._keys(run_id).run, "publish_failed", "publish_after_ms")
        return failed is None and int(after_ms or 0) <= self._now_ms()

    def record_publish_error(
        self, run_id: str, error: str, *, is_permanent: bool = False, retry_after_seconds: float | None = None
    ) -> None:
        """Note why publishing failed, whether the error is permanent, and how long to wait before the next attempt."""
        key, pipeline = self._keys(run_id).run, self.redis.pipeline()
        pipeline.hdel(key, "publish_failed", "publish_after_ms")
        pipeline.hset(key, "publish_error", redacted(error))
        if is_permanent:
            pipeline.hset(key, "publish_failed", 1)
        if retry_after_seconds:
            pipeline.hset(key, "publish_after_ms", self._now_ms() + int(retry_after_seconds * 1000))
        pipeline.execute()

    def clear_publish_error(self, run_id: str) -> None:
        """Forget why publishing failed and how often files were found damaged, because a person asks to publish again."""
        key = self._keys(run_id).run
        damaged = [field for field in map(str, self.redis.hkeys(key)) if field.startswith(_DAMAGED)]
        self.redis.hdel(key, "publish_error", "publish_failed", "publish_after_ms", "tidy_tries", *damaged)

    def count_waves(self, run_id: str, commits: int) -> None:
        """Note commits that saved finished shards, for people. What is saved, the output itself says."""
        pipeline, key = self.redis.pipeline(), self._keys(run_id).run
        pipeline.hincrby(key, "waves", commits)
        pipeline.hset(key, "wave_ms", self._now_ms())
        pipeline.execute()

    def count_tidy_try(self, run_id: str) -> int:
        """How often tidying up after the publication was tried, including this time."""
        return int(self.redis.hincrby(self._keys(run_id).run, "tidy_tries", 1))

    # --- refusals ---------------------------------------------------------------------------------------------------

    def count_refused(self, what: str) -> None:
        """Count the refusal of something that no correct part of the fleet sends, such as a foreign message."""
        self.redis.hincrby(REFUSED, what, 1)
        self.redis.pexpire(REFUSED, _REFUSED_MS)

    def refused(self) -> dict[str, int]:
        """What was refused lately, over all runs, and how often. Forgotten a day after the last refusal."""
        return {str(what): int(times) for what, times in sorted(self.redis.hgetall(REFUSED).items())}

    # --- plumbing ---------------------------------------------------------------------------------------------------

    def _keys(self, run_id: str) -> Keys:
        return Keys(run_id, self.kind.noun)

    def _claimed_keys(self, claim: Claim[S]) -> list[str]:
        return self._keys(claim.run_id).of(claim.shard.name)

    def _unknown(self, claim: Claim[S]) -> RunUnknown:
        return RunUnknown(
            f"The ledger has lost the {self.kind.noun} {claim.run_id}. "
            f"Run the same `{self.kind.enqueued_by}` again to rebuild it."
        )

    def _run_script(self, name: str, keys: list[str], arguments: list[Any]) -> Any:
        return self._scripts[name](keys=keys, args=arguments)

    def _now_ms(self) -> int:
        seconds, microseconds = self.redis.time()
        return int(seconds) * 1000 + int(microseconds) // 1000

    def _fields(self, key: str) -> dict[str, str]:
        return {str(name): str(value) for name, value in self.redis.hgetall(key).items()}

    def _ordered(self, key: str) -> list[str]:
        return [str(name) for name in self.redis.zrange(key, 0, -1)]

    def _attempts_fields(self, keys: Keys, names: Iterable[str], field: str) -> list[Any]:
        pipeline = self.redis.pipeline()
        for name in names:
            pipeline.hget(keys.attempts(name), field)
        return list(pipeline.execute())


def new_nonce() -> str:
    """An identifier that tells one claim from all others."""
    return uuid4().hex[:12]


def _named(receipts: Iterable[Receipt]) -> list[str | bytes]:
    return [part for receipt in receipts for part in (receipt.shard, receipt.to_json())]


def _readable_receipt(content: str | None) -> Receipt | None:
    """The receipt, or None if another release wrote it in a different format."""
    try:
        return Receipt.from_json(content) if content else None
    except ValueError:
        return None


def _batches(items: Iterable[_T]) -> Iterator[list[_T]]:
    remaining = iter(items)
    while batch := list(islice(remaining, _BATCH)):
        yield batch


def _takeable(queued: int, running: int, max_workers: str | None) -> int:
    """The queued shards that further workers may take."""
    return queued if max_workers is None else max(0, min(queued, int(max_workers) - running))


def _lua(name: str) -> str:
    return resources.files("fleet.ledger").joinpath("lua", f"{name}.lua").read_text()


def _run_seconds(run: dict[str, str], *, open_shards: int, now: int) -> float:
    if "started_ms" not in run:
        return 0.0
    end_ms = now * 1000 if open_shards else int(run.get("finished_ms", run["started_ms"]))
    return max(0.0, (end_ms - int(run["started_ms"])) / 1000)


def _device_seconds(run: dict[str, str]) -> dict[str, float]:
    found = {key.removeprefix(_DEVICE_MS): int(run[key]) / 1000 for key in run if key.startswith(_DEVICE_MS)}
    return dict(sorted(found.items()))


def _read_spec(kind: Kind[S], run_id: str, spec: str | bytes) -> S:
    try:
        return kind.from_json(spec)
    except ValidationError as error:
        wrong = error.errors()[0]
        field = ".".join(map(str, wrong["loc"]))
        raise NewerVersion(
            f"{kind.noun.capitalize()} {run_id} was enqueued by another version of shardsift, and this version cannot read its "
            f"spec ({field}: {wrong['msg']}). Update shardsift here."
        ) from error
