"""All reads and writes of a fleet's runs.

States go `queued → running → done | failed`; each move is one Lua script on Redis' own clock, so that it happens whole
or not at all and no worker's clock matters. A claim lasts for a lease and carries a token; a worker that comes back after
its lease ran out, and another took the shard, finds the token stale.
"""

from collections.abc import Iterable, Iterator, Mapping
from importlib import resources
from itertools import islice
from typing import Any, TypeVar
from uuid import uuid4

import redis
from pydantic import TypeAdapter

from fleet.errors import LeaseLost, RunUnknown, UsageError
from fleet.ledger.connect import connect
from fleet.ledger.keys import REFUSED, RUNS, Keys
from fleet.ledger.pace import Pace, read_pace
from fleet.ledger.records import Claim, Counts, Due, Failure, Outcome, Publication, Refusal
from fleet.receipt import Receipt
from fleet.redact import redacted
from fleet.settings import Settings
from fleet.shard import Shard
from fleet.spec import RunSpec

_SHARD = TypeAdapter(Shard)
_PUBLICATION = TypeAdapter(Publication)
_T = TypeVar("_T")
_BATCH = 200  # shards in one call to Redis, which answers nobody else meanwhile: some milliseconds
_DUE_LIMIT = 1000  # shards of each kind in one answer
_BACKOFF_SECONDS = 5.0  # after the first error; four times as long after each further one
_MAX_BACKOFF_SECONDS = 600.0
_DAMAGED = "damaged:"  # fields of the run: how often a shard's stored files were found damaged
_MAX_DAMAGED = 3  # times that a shard's stored files may be found damaged before its output or disk is to blame
_ROWS = ("rows_in", "rows_kept", "rows_dropped", "rows_errored")
_SCRIPTS = (
    *("add_shards", "claim", "renew", "save_scores", "complete", "end_attempt"),
    *("take_due", "queue_again", "forget_messages", "retry", "restore", "requeue", "remember", "update_shards"),
    *("cancel", "begin_publishing", "record_publication"),
)


class Ledger:
    """Cheap to make; safe to share between threads. Methods raise redis.RedisError where Redis does not answer."""

    def __init__(
        self,
        client: redis.Redis,
        *,
        lease_seconds: float = 60.0,
        sweep_seconds: float = 15.0,
        max_attempts: int = 3,
        max_errors: int = 8,
        checkpoint_bytes: int = 512 << 20,
    ) -> None:
        self.redis = client
        self.lease_seconds = lease_seconds
        self._lease_ms = int(lease_seconds * 1000)
        self._outage_ms = int(max(lease_seconds / 2, 3 * sweep_seconds) * 1000)
        self._max_attempts = max_attempts
        self._max_errors = max_errors
        self._checkpoint_bytes = checkpoint_bytes
        prelude = _lua("prelude")
        self._scripts = {name: client.register_script(prelude + _lua(name)) for name in _SCRIPTS}

    @classmethod
    def connect(cls, settings: Settings) -> "Ledger":
        """The ledger of the fleet's Redis. Raises UsageError where that is missing or refuses us."""
        return cls(
            connect(settings),
            lease_seconds=settings.lease_seconds,
            sweep_seconds=settings.sweep_seconds,
            max_attempts=settings.max_attempts,
            max_errors=settings.max_errors,
            checkpoint_bytes=settings.checkpoint_mib << 20,
        )

    # --- runs -------------------------------------------------------------------------------------------------------

    def create_run(self, spec: RunSpec, shards: Iterable[Shard], *, now: float) -> int:
        """Write a run and the shards it does not have yet; returns how many those were. May run twice; lifts a cancellation."""
        added = self.add_shards(spec, shards, now=now)
        self.mark_enqueued(spec.run_id)
        return added

    def add_shards(self, spec: RunSpec, shards: Iterable[Shard], *, now: float) -> int:
        """As `create_run`, for a caller that has more to write: nothing is sent or published before `mark_enqueued`."""
        keys = Keys(spec.run_id)
        self.redis.hset(keys.run, mapping={"spec": spec.to_json(), "created": now})
        self.redis.hdel(keys.run, "cancelled")
        self.redis.zadd(RUNS, {spec.run_id: now}, nx=True)
        added = 0
        for batch in _batches(shards):
            fields = [part for shard in batch for part in (shard.name, _SHARD.dump_json(shard))]
            added += self._run_script("add_shards", keys.of(), fields)
        return added

    def mark_enqueued(self, run_id: str) -> None:
        """All shards of the run are written, and what is known of them."""
        self.redis.hset(Keys(run_id).run, "complete", 1)

    def is_enqueued(self, run_id: str) -> bool:
        """Whether it was marked so: a producer may have died midway."""
        return bool(self.redis.hexists(Keys(run_id).run, "complete"))

    def restore(self, run_id: str, receipts: Iterable[Receipt]) -> int:
        """Record as done what receipts beside the outputs prove, where the ledger has those shards open and unclaimed.

        Returns how many that were. May run twice.
        """
        keys = Keys(run_id)
        prefixes = [keys.attempts(""), keys.scores("")]
        restored = 0
        for batch in _batches(receipts):
            fields = [part for receipt in batch for part in (receipt.shard, receipt.to_json(), *_fates(receipt))]
            restored += self._run_script("restore", keys.of(), [*prefixes, *fields])
        return restored

    def run_ids(self) -> list[str]:
        """Newest first."""
        return self._ordered(RUNS)[::-1]

    def spec(self, run_id: str) -> RunSpec:
        """Raises UsageError for a run that the ledger does not have."""
        spec = self.redis.hget(Keys(run_id).run, "spec")
        if spec is None:
            known = ", ".join(self.run_ids()[:5]) or "none"
            raise UsageError(f"The ledger has no run {run_id!r}. Newest runs: {known}.")
        return RunSpec.from_json(spec)

    def counts(self, run_id: str) -> Counts:
        keys = Keys(run_id)
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
            seconds=_run_seconds(run, open_shards=waiting + sent + running, now=now),
            **{field: int(run.get(field, 0)) for field in _ROWS},
        )

    def pace(self, run_id: str) -> Pace:
        """How fast the run goes, or went."""
        keys = Keys(run_id)
        pipeline = self.redis.pipeline()
        for key in (keys.waiting, keys.sent, keys.running):
            pipeline.zcard(key)
        pipeline.hgetall(keys.run)
        pipeline.time()
        *open_shards, run, (seconds, microseconds) = pipeline.execute()
        now_ms = int(seconds) * 1000 + int(microseconds) // 1000
        end_ms = now_ms if any(open_shards) else int(run.get("finished_ms", now_ms))
        return read_pace(run, now_ms=now_ms, end_ms=end_ms)

    def cancel(self, run_id: str) -> None:
        """Workers stop at their next batch; nothing is forgotten, and `retry` or `create_run` takes it up again.

        Raises UsageError for a run that is published. One that is being published just now ends as published.
        """
        if self._run_script("cancel", Keys(run_id).of(), []) == "published":
            raise UsageError(f"Run {run_id} is published: there is nothing left to cancel.")

    def is_cancelled(self, run_id: str) -> bool:
        return bool(self.redis.hexists(Keys(run_id).run, "cancelled"))

    def retry(self, run_id: str, *, done_too: bool = False) -> int:
        """Queue the failed shards again with fresh tries, and lift a cancellation; returns how many.

        With `done_too` every finished shard is scored again: for outputs that were lost before they were published.
        """
        keys = Keys(run_id)
        self.redis.hdel(keys.run, "cancelled")
        self.clear_publish_error(run_id)
        names = [*self.redis.smembers(keys.failed), *(self.redis.hkeys(keys.receipts) if done_too else ())]
        prefix = keys.attempts("")
        return sum(self._run_script("retry", keys.of(), [prefix, *batch]) for batch in _batches(names))

    def requeue(self, run_id: str, damaged: Mapping[str, str], *, of: Iterable[Receipt] = ()) -> int:
        """Queue done shards again whose stored files are lost or damaged; `damaged` says by name what is wrong.

        Their rows count no more, and the run is no longer published. The next claim gets the old receipt as `previous`.
        After three times a shard is failed. A shard that was done again since the receipts `of` were read is left.
        Returns how many shards it was.
        """
        keys = Keys(run_id)
        files = {receipt.shard: f"{receipt.data.staged_path} {receipt.data.sha256}" for receipt in of}
        requeued = 0
        for batch in _batches(damaged.items()):
            fields = [part for name, reason in batch for part in (name, reason, files.get(name, ""))]
            requeued += int(self._run_script("requeue", keys.of(), [keys.attempts(""), _MAX_DAMAGED, *fields]))
        return requeued

    def remember(self, run_id: str, receipts: Iterable[Receipt]) -> int:
        """Note for open shards the receipt of an earlier attempt whose files are partly left; returns how many."""
        keys = Keys(run_id)
        return sum(
            int(self._run_script("remember", keys.of(), [keys.attempts(""), *_named(batch)]))
            for batch in _batches(receipts)
        )

    def shards(self, run_id: str, names: Iterable[str] | None = None) -> Iterator[Shard]:
        """The records of these shards, or of all, in the order of their names."""
        key = Keys(run_id).shards
        for batch in _batches(sorted(map(str, self.redis.hkeys(key) if names is None else names))):
            for record in self.redis.hmget(key, batch):
                if record is not None:
                    yield _SHARD.validate_json(record)

    def update_shards(self, run_id: str, shards: Iterable[Shard]) -> int:
        """Replace the records of those of these shards that are not done; returns how many changed."""
        changed = 0
        for batch in _batches(shards):
            fields = [part for shard in batch for part in (shard.name, _SHARD.dump_json(shard))]
            changed += int(self._run_script("update_shards", Keys(run_id).of(), fields))
        return changed

    def forget_messages(self, run_id: str) -> None:
        """Have every open shard sent anew, leased or not; for whoever knows that its workers and messages are gone.

        A shard that was at work counts as stopped: whoever ended its worker ended the messages too.
        """
        keys = Keys(run_id)
        self._run_script("forget_messages", keys.of(), [keys.attempts("")])

    def take_due(self, run_id: str, *, room: int) -> Due:
        """The shards to send messages for now; they count as sent from here on. `room` limits those never tried."""
        keys = Keys(run_id)
        arguments = [
            room,
            _DUE_LIMIT,
            self._lease_ms,
            self._outage_ms,
            self._max_attempts,
            keys.attempts(""),
        ]
        again, fresh = self._run_script("take_due", keys.of(), arguments)
        return Due(again=again, fresh=fresh, more=max(len(again), len(fresh)) >= _DUE_LIMIT)

    def sent_before(self, run_id: str, *, seconds: float) -> list[str]:
        """Shards whose message was sent so many seconds ago, or earlier, and that nobody has claimed since."""
        age_ms = self._now_ms() - int(seconds * 1000)
        return [str(name) for name in self.redis.zrangebyscore(Keys(run_id).sent, "-inf", age_ms)]

    def queue_again(self, run_id: str, shards: Iterable[str], *, seconds: float) -> int:
        """Have shards wait anew whose message is lost, if it was sent so many seconds ago; returns how many."""
        arguments = [int(seconds * 1000)]
        return sum(
            int(self._run_script("queue_again", Keys(run_id).of(), [*arguments, *batch])) for batch in _batches(shards)
        )

    # --- one shard --------------------------------------------------------------------------------------------------

    def claim(self, run_id: str, shard_name: str, owner: str, *, nonce: str | None = None) -> Claim | Refusal:
        """Take a shard for one lease. Two workers never hold the same shard with valid tokens.

        `owner` is a worker, of which one process at a time scores: its next claim of a shard ends its claim before, as a
        crash. Only with the `nonce` of that claim, from `new_nonce`, it is the same one: for an answer that was lost.
        """
        answer = self._run_script(
            "claim",
            Keys(run_id).of(shard_name),
            [shard_name, owner, self._lease_ms, self._max_attempts, nonce or new_nonce()],
        )
        if answer[0] != "claimed":
            return Refusal(answer[0])
        _, token, attempt, spilled, shard, spec, previous = answer
        return Claim(
            run_id=run_id,
            shard=_SHARD.validate_json(shard),
            spec=RunSpec.from_json(spec),
            token=token,
            attempt=int(attempt),
            spilled=bool(spilled),
            previous=_readable_receipt(previous),
        )

    def renew(self, claim: Claim, *, rows: int) -> None:
        """Extend the lease and note the rows scored so far.

        Raises LeaseLost when the shard is no longer ours, RunUnknown when Redis came back without the run.
        """
        answer = self._run_script("renew", _keys(claim), [claim.shard.name, claim.token, self._lease_ms, rows])
        if answer == "unknown":
            raise _unknown(claim)
        if answer != "renewed":
            reason = "the run was cancelled" if answer == "cancelled" else "another attempt took it over"
            raise LeaseLost(f"Shard {claim.shard.name} of {claim.run_id} is not ours any more: {reason}.")

    def save_scores(self, claim: Claim, window: int, scores: bytes) -> bool:
        """Keep a window's scores for whoever resumes the shard; False where the run's checkpoints are full.

        `window` is its first row. Raises LeaseLost for a stale token. A later save replaces the window's earlier one.
        """
        arguments = [claim.shard.name, claim.token, window, scores, self._checkpoint_bytes]
        answer = self._run_script("save_scores", _keys(claim), arguments)
        if answer == "lost":
            raise LeaseLost(f"Shard {claim.shard.name} of {claim.run_id} is not ours any more.")
        return bool(answer == "saved")

    def saved_scores(self, claim: Claim) -> dict[int, bytes]:
        """The scores of the windows that earlier attempts finished, by their first row."""
        key = Keys(claim.run_id).scores(claim.shard.name)
        found = self.redis.execute_command("HGETALL", key, NEVER_DECODE=True)  # type: ignore[no-untyped-call]
        return {int(window): scores for window, scores in found.items()}

    def complete(self, claim: Claim, receipt: Receipt) -> int:
        """Record a shard as done; returns the number of shards still open.

        Raises LeaseLost for a stale token, RunUnknown when Redis came back without the run.
        """
        arguments = [claim.shard.name, claim.token, receipt.to_json(), *_fates(receipt)]
        answer, still_open = self._run_script("complete", _keys(claim), arguments)
        if answer == "unknown":
            raise _unknown(claim)
        if answer == "lost":
            raise LeaseLost(f"Shard {claim.shard.name} of {claim.run_id} was finished by another attempt.")
        return int(still_open)

    def is_done(self, claim: Claim) -> bool:
        return bool(self.redis.hexists(Keys(claim.run_id).receipts, claim.shard.name))

    def release(self, claim: Claim) -> None:
        """Give a shard back: a stop, not a failure; the attempt is not counted."""
        self._end_attempt(claim, Outcome.STOPPED)

    def retry_later(self, claim: Claim, error: str, traceback: str, *, after_seconds: float | None = None) -> int:
        """Give a shard back after an error that may pass, to wait 5, 20, 80, … s; failed after `max_errors` of them.

        It waits at least `after_seconds`, if the service said so. Returns the number of shards still open.
        """
        return self._end_attempt(claim, Outcome.ERROR, error, traceback, least_seconds=after_seconds or 0)

    def record_crash(self, claim: Claim, error: str, traceback: str) -> int:
        """Give a shard back after an error that nobody foresaw; failed after `max_attempts` of them and of crashes.

        Returns the number of shards still open.
        """
        return self._end_attempt(claim, Outcome.CRASH, error, traceback)

    def fail(self, claim: Claim, error: str, traceback: str) -> int:
        """Record a shard that no attempt can save; returns the number of shards still open."""
        return self._end_attempt(claim, Outcome.NON_RETRYABLE, error, traceback)

    def report_crash(self, run_id: str, shard_name: str, owner: str, error: str, traceback: str = "") -> int:
        """Note that the process which scored a shard for `owner` is dead; the shard waits no more for its lease to end.

        Returns the number of shards still open. Does nothing where that owner does not hold the shard.
        """
        arguments = self._end_arguments("owner", owner, Outcome.CRASH, error, traceback, backoff_seconds=0)
        _, still_open = self._run_script("end_attempt", Keys(run_id).of(shard_name), [shard_name, *arguments, 0])
        return int(still_open)

    def _end_attempt(
        self, claim: Claim, outcome: Outcome, error: str = "", traceback: str = "", *, least_seconds: float = 0
    ) -> int:
        arguments = self._end_arguments("token", claim.token, outcome, error, traceback, _BACKOFF_SECONDS)
        least_ms = int(least_seconds * 1000)
        _, still_open = self._run_script("end_attempt", _keys(claim), [claim.shard.name, *arguments, least_ms])
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

    # --- what came of it --------------------------------------------------------------------------------------------

    def receipts(self, run_id: str) -> Iterator[Receipt]:
        """The receipts of all done shards, in the order of their names."""
        keys = Keys(run_id)
        names = sorted(str(name) for name in self.redis.hkeys(keys.receipts))
        for batch in _batches(names):
            for receipt in self.redis.hmget(keys.receipts, batch):
                if receipt is not None:  # a `retry --all` meanwhile
                    yield Receipt.from_json(receipt)

    def failures(self, run_id: str) -> list[Failure]:
        """The dead-letter list, in the order of the shards' names."""
        keys = Keys(run_id)
        names = sorted(str(name) for name in self.redis.smembers(keys.failed))
        pipeline = self.redis.pipeline()
        for name in names:
            pipeline.hmget(keys.attempts(name), "error", "traceback", "worker", "attempts")
        return [
            Failure(
                shard=name,
                error=error or "",
                traceback=traceback or "",
                worker=worker or "",
                attempts=int(attempts or 0),
            )
            for name, (error, traceback, worker, attempts) in zip(names, pipeline.execute(), strict=True)
        ]

    def publication(self, run_id: str) -> Publication | None:
        published = self.redis.hget(Keys(run_id).run, "published")
        return _PUBLICATION.validate_json(published) if published else None

    def begin_publishing(self, run_id: str) -> int | None:
        """The version of the receipts that are about to be published; None for a cancelled run. Read the receipts after it.

        A cancellation after this does not stop the publication, which then ends the cancellation.
        """
        version = self._run_script("begin_publishing", Keys(run_id).of(), [])
        return None if version is None else int(version)

    def is_publishing(self, run_id: str) -> bool:
        """Whether a finalizer began to publish and has not said how that ended: it may be at work, or dead."""
        return bool(self.redis.hexists(Keys(run_id).run, "publishing_ms"))

    def end_publishing(self, run_id: str) -> None:
        """Note that the publication which was begun was looked for, and that there is none."""
        self.redis.hdel(Keys(run_id).run, "publishing_ms")

    def record_publication(self, run_id: str, publication: Publication, *, version: int | None = None) -> bool:
        """Record what was published, and end a cancellation that came meanwhile.

        False if the receipts are not of this `version` any more: then the run is not published, and a sweep asks again.
        """
        arguments = [_PUBLICATION.dump_json(publication), "" if version is None else version]
        return bool(self._run_script("record_publication", Keys(run_id).of(), arguments) == "recorded")

    def withdraw_publication(self, run_id: str) -> None:
        """The output is not what was published any more."""
        self.redis.hdel(Keys(run_id).run, "published")

    def publish_error(self, run_id: str) -> str | None:
        """Why the last try to publish did not land."""
        error = self.redis.hget(Keys(run_id).run, "publish_error")
        return None if error is None else str(error)

    def publish_failed(self, run_id: str) -> bool:
        """Whether that was an error that no further try can mend; the finalizer does not try again by itself."""
        return bool(self.redis.hexists(Keys(run_id).run, "publish_failed"))

    def may_publish(self, run_id: str) -> bool:
        """Whether a try to publish makes sense now: the last did not fail for good, and no service asked to wait."""
        failed, after_ms = self.redis.hmget(Keys(run_id).run, "publish_failed", "publish_after_ms")
        return failed is None and int(after_ms or 0) <= self._now_ms()

    def record_publish_error(
        self, run_id: str, error: str, *, is_permanent: bool = False, retry_after_seconds: float | None = None
    ) -> None:
        """Note why publishing did not land, and whether and when another try makes sense."""
        key, pipeline = Keys(run_id).run, self.redis.pipeline()
        pipeline.hdel(key, "publish_failed", "publish_after_ms")
        pipeline.hset(key, "publish_error", redacted(error))
        if is_permanent:
            pipeline.hset(key, "publish_failed", 1)
        if retry_after_seconds:
            pipeline.hset(key, "publish_after_ms", self._now_ms() + int(retry_after_seconds * 1000))
        pipeline.execute()

    def clear_publish_error(self, run_id: str) -> None:
        """A person asks for another try: forget why publishing failed, and how often files were found damaged."""
        key = Keys(run_id).run
        damaged = [field for field in map(str, self.redis.hkeys(key)) if field.startswith(_DAMAGED)]
        self.redis.hdel(key, "publish_error", "publish_failed", "publish_after_ms", "tidy_tries", *damaged)

    def count_tidy_try(self, run_id: str) -> int:
        """How often tidying up after the publication was tried, with this time."""
        return int(self.redis.hincrby(Keys(run_id).run, "tidy_tries", 1))

    # --- what was refused -------------------------------------------------------------------------------------------

    def count_refused(self, what: str) -> None:
        """Note that something was refused that no part of ours in good order would send."""
        self.redis.hincrby(REFUSED, what, 1)

    def refused(self) -> dict[str, int]:
        """What was refused so far, over all runs, and how often."""
        return {str(what): int(times) for what, times in sorted(self.redis.hgetall(REFUSED).items())}

    # --- plumbing ---------------------------------------------------------------------------------------------------

    def _run_script(self, name: str, keys: list[str], arguments: list[Any]) -> Any:
        return self._scripts[name](keys=keys, args=arguments)

    def _now_ms(self) -> int:
        seconds, microseconds = self.redis.time()
        return int(seconds) * 1000 + int(microseconds) // 1000

    def _ordered(self, key: str) -> list[str]:
        return [str(name) for name in self.redis.zrange(key, 0, -1)]

    def _attempts_fields(self, keys: Keys, names: Iterable[str], field: str) -> list[Any]:
        pipeline = self.redis.pipeline()
        for name in names:
            pipeline.hget(keys.attempts(name), field)
        return list(pipeline.execute())


def new_nonce() -> str:
    """What tells one claim from all others."""
    return uuid4().hex[:12]


def _keys(claim: Claim) -> list[str]:
    return Keys(claim.run_id).of(claim.shard.name)


def _unknown(claim: Claim) -> RunUnknown:
    return RunUnknown(f"The ledger has lost the run {claim.run_id}. The same `producer enqueue` takes it up again.")


def _fates(receipt: Receipt) -> tuple[int, ...]:
    return tuple(getattr(receipt, rows) for rows in _ROWS)


def _named(receipts: Iterable[Receipt]) -> list[str | bytes]:
    return [part for receipt in receipts for part in (receipt.shard, receipt.to_json())]


def _readable_receipt(content: str | None) -> Receipt | None:
    """None for one that another release wrote."""
    try:
        return Receipt.from_json(content) if content else None
    except ValueError:
        return None


def _batches(items: Iterable[_T]) -> Iterator[list[_T]]:
    remaining = iter(items)
    while batch := list(islice(remaining, _BATCH)):
        yield batch


def _lua(name: str) -> str:
    return resources.files("fleet.ledger").joinpath("lua", f"{name}.lua").read_text()


def _run_seconds(run: dict[str, str], *, open_shards: int, now: int) -> float:
    if "started_ms" not in run:
        return 0.0
    end_ms = now * 1000 if open_shards else int(run.get("finished_ms", run["started_ms"]))
    return max(0.0, (end_ms - int(run["started_ms"])) / 1000)
