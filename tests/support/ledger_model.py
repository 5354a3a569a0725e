"""A model of the ledger in plain Python: what each method of `fleet.ledger.Ledger` returns or raises, and the state it leaves.

The model has the same methods, for a single run. `now` is the clock in milliseconds, and the caller moves it.
"""

from collections.abc import Collection, Iterable
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import Any

from shardsift.fleet.errors import LeaseLost, RunUnknown, UsageError
from shardsift.fleet.ledger import Claim, Publication, Refusal
from shardsift.fleet.ledger.records import Due, Steering
from shardsift.fleet.run.receipt import Receipt
from shardsift.fleet.run.spec import RunSpec, Shard

LEASE, OUTAGE, BACKOFF, MAX_BACKOFF = 60_000, 45_000, 5_000, 600_000  # ms
MAX_CRASHES, MAX_ERRORS, MAX_DAMAGED = 3, 3, 3
CHECKPOINT_BYTES = 100
NEVER_TRIED = 0
LOST = "lost"  # the place of a shard if Redis has deleted the key that held it


@dataclass
class Attempts:
    attempts: int = 0
    crashes: int = 0
    errors: int = 0
    token: str | None = None
    owner: str | None = None
    error: str = ""
    spilled: bool = False
    spared: bool = False
    storing: bool = False
    rows: int = 0
    noted: int | None = None  # up to when the worker's time is counted
    scores: dict[int, bytes] = field(default_factory=dict)


@dataclass
class ShardState:
    """A shard's place and time.

    `at` is when a waiting shard is due, when a sent shard was sent, or when the lease of a running shard ends;
    otherwise 0.
    """

    record: Shard | None
    place: str = "waiting"  # or sent, running, failed, done, lost
    at: int = NEVER_TRIED
    receipt: Receipt | None = None
    attempts: Attempts | None = None  # None if there was no attempt, or the shard is done


@dataclass
class RunState:
    shards: dict[str, ShardState] = field(default_factory=dict)
    enqueued: bool = False
    taken: dict[str, Receipt] = field(default_factory=dict)
    has_spec: bool = False
    cancelled: bool = False
    paused: str | None = None
    max_workers: int | None = None
    number_format: str | None = None
    has_scored: bool = False
    publication: Publication | None = None
    publishing: bool = False
    receipts_version: int = 0
    worker_ms: int = 0
    counted: dict[str, int] = field(default_factory=dict)  # by worker: up to when its time is counted
    damaged: dict[str, int] = field(default_factory=dict)
    refused_outputs: int = 0
    refused_files: int = 0


class LedgerModel:
    def __init__(self, spec: RunSpec, now: int) -> None:
        self.spec = spec
        self.now = now
        self.lose_all()

    # --- Redis itself ---

    def lose_all(self) -> None:
        self.state = RunState()
        self.fence = 0
        self.looked: int | None = None
        self.forgotten_bytes = 0  # of checkpoints that the lost hash of a run had counted

    def saved(self) -> Any:
        return deepcopy((self.state, self.fence, self.looked, self.forgotten_bytes))

    def put_back(self, saved: Any) -> None:
        self.state, self.fence, self.looked, self.forgotten_bytes = deepcopy(saved)

    # --- the run ---

    def add_shards(self, spec: RunSpec, shards: Iterable[Shard], *, now: float) -> int:
        added = 0
        for shard in shards:
            state = self.state.shards.setdefault(shard.name, ShardState(shard, LOST))
            state.record = state.record or shard
            if state.place == LOST:
                state.place, state.at = "waiting", NEVER_TRIED
                added += 1
        self.state.has_spec, self.state.cancelled = True, False
        if added:
            self.state.publication = None
        return added

    def mark_enqueued(self, run_id: str) -> None:
        self.state.enqueued = True
        self.state.taken.clear()

    def lose(self, keys: list[str]) -> None:
        for _, state in self._in(*keys, *(["done"] if "receipts" in keys else [])):
            state.place, state.at, state.receipt = LOST, 0, None
        if "shards" in keys:
            for state in self.state.shards.values():
                state.record = None
        if "run" in keys:
            self._lose_run()

    def _lose_run(self) -> None:
        """Lose the run's hash. Keeps the shards, the taken receipts and the counters of other keys."""
        kept = ("shards", "taken", "counted", "refused_outputs", "refused_files")
        self.state = RunState(**{name: getattr(self.state, name) for name in kept})
        self.fence, self.looked = 0, None
        self.forgotten_bytes += self.checkpoint_bytes()

    def take_receipts(self, run_id: str) -> list[Receipt]:
        is_whole = all(state.place != LOST and state.record for state in self.state.shards.values())
        if not (self.state.has_spec and is_whole):
            self.state.enqueued = False
            for name, state in self._in("done"):
                self.state.taken[name] = state.receipt
                state.place, state.at, state.receipt = LOST, 0, None
        return [receipt for _, receipt in sorted(self.state.taken.items())]

    def update_shards(self, run_id: str, shards: Iterable[Shard]) -> int:
        known = [(self.state.shards[shard.name], shard) for shard in shards if shard.name in self.state.shards]
        changed = [(state, shard) for state, shard in known if state.place != "done" and state.record != shard]
        for state, shard in changed:
            state.record = shard
        return len(changed)

    def restore(self, run_id: str, receipts: Iterable[Receipt]) -> int:
        return sum(self._done(state, receipt) for state, receipt in self._queued(receipts))

    def cancel(self, run_id: str) -> None:
        if self.state.publication and not self._open():
            raise UsageError
        self.state.cancelled = True
        self.state.paused = None

    def pause(self, run_id: str, *, reason: str) -> None:
        if self.state.cancelled or not self._open():
            raise UsageError
        if self.state.paused is None:
            self.state.paused = reason

    def resume(self, run_id: str) -> bool:
        was_paused, self.state.paused = self.state.paused is not None, None
        return was_paused

    def steer(self, run_id: str, steering: Steering) -> None:
        self.state.max_workers = steering.max_workers

    def retry(self, run_id: str, *, changed: Collection[str] = ()) -> int:
        self.state.cancelled = False
        self.state.damaged.clear()
        chosen = [*self._in("failed"), *(one for one in self._in("done") if one[0] in changed)]
        for _, state in chosen:
            self._undone(state)
            state.place, state.at = "waiting", NEVER_TRIED
            if state.attempts:
                state.attempts = replace(state.attempts, crashes=0, errors=0, error="", token=None)
        return len(chosen)

    def requeue(self, run_id: str, damaged: dict[str, str], *, of: list[Receipt]) -> int:
        staged = {receipt.shard: receipt.data.staged_path for receipt in of}
        requeued = 0
        for name, reason in damaged.items():
            state = self.state.shards.get(name)
            if state is None or state.receipt is None:
                continue
            if name in staged and state.receipt.data.staged_path != staged[name]:
                continue
            times = self.state.damaged[name] = self.state.damaged.get(name, 0) + 1
            failed = times >= MAX_DAMAGED
            error = f"{reason} (found {times} times)" if failed else reason
            state.attempts = Attempts(error=error)
            self._undone(state)
            state.place, state.at = ("failed", 0) if failed else ("waiting", self.now)
            self.state.refused_files += 1
            requeued += 1
        return requeued

    # --- messages ---

    def take_due(self, run_id: str, *, room: int) -> Due:
        looked, self.looked = self.looked or self.now, self.now
        if looked > self.now:
            self._bring_closer(by=looked - self.now)
        if self.state.cancelled or not self.state.enqueued:
            return Due(again=[], fresh=[], more=False)
        for at, state in [(state.at, state) for _, state in self._in("running")]:
            if at <= self.now:
                self._expire(state, was_away=self.now - looked > OUTAGE, looked=looked)
        if self.state.paused is not None:
            return Due(again=[], fresh=[], more=False)
        waiting = sorted((state.at, name) for name, state in self._in("waiting") if state.at <= self.now)
        again = [name for at, name in waiting if at > NEVER_TRIED][: self._free_places()]
        fresh = [name for at, name in waiting if at == NEVER_TRIED][: min(room, self._free_places() - len(again))]
        for name in again + fresh:
            self.state.shards[name].place, self.state.shards[name].at = "sent", self.now
        return Due(again=again, fresh=fresh, more=False)

    def sent_before(self, run_id: str, *, seconds: float) -> list[str]:
        sent = sorted((state.at, name) for name, state in self._in("sent"))
        return [name for at, name in sent if at <= self.now - seconds * 1000]

    def queue_again(self, run_id: str, names: list[str], *, seconds: float) -> list[str]:
        overdue = self.sent_before(run_id, seconds=seconds)
        lost = [name for name in names if name in overdue]
        for name in lost:
            self._wait(self.state.shards[name])
        return lost

    def forget_messages(self, run_id: str) -> None:
        for _, state in self._in("running"):
            self._end_token(state)
            self._count(state, attempts=-1, crashes=-1)
            self._wait(state)
        for _, state in self._in("sent"):
            self._wait_again(state)

    # --- one shard ---

    def claim(self, run_id: str, name: str, owner: str, *, nonce: str, number_format: str) -> Claim | Refusal:
        state = self.state.shards.get(name)
        if state is None or state.record is None or not self.state.has_spec:
            return Refusal.UNKNOWN
        if self.state.cancelled:
            return Refusal.CANCELLED
        if state.place in ("done", "failed"):
            return Refusal(state.place)
        if state.place == "running":
            known = self._begun(state)
            if known.token and known.token.endswith(nonce):
                return self._claim(state)
            if state.at > self.now and known.owner != owner:
                return Refusal.RUNNING
            self._crash(state, "The shard was claimed again before this attempt had ended.")
        if state.attempts and state.attempts.crashes >= MAX_CRASHES:
            self._give_up(state)
            return Refusal.FAILED
        if refusal := self._refusal(state, owner, number_format):
            if state.place != "waiting":
                self._wait_again(state)
            return refusal
        if state.place == "waiting" and state.at > self.now:
            return Refusal.WAITING
        known = self._begun(state)
        self.fence += 1
        known.token, known.owner, known.rows = f"{self.fence}-{nonce}", owner, 0
        known.spared = known.storing = False
        known.noted = self.now
        self._count(state, attempts=1, crashes=1)
        self._run(state)
        self.state.number_format = number_format or self.state.number_format
        return self._claim(state)

    def renew(self, claim: Claim, *, rows: int) -> bool:
        state = self._writable(claim, unknown=RunUnknown)
        if self.state.cancelled:
            raise LeaseLost
        known = self._begun(state)
        if known.token != claim.token:
            known.token, known.owner = claim.token, None
            self._count(state, attempts=1, crashes=1)
        known.rows, known.spared = rows, False
        self._note_time(known)
        self._run(state)
        return self.state.paused is None

    def leave_device(self, claim: Claim) -> None:
        state = self.state.shards.get(claim.shard.name)
        if state and state.attempts and state.attempts.token == claim.token:
            self._note_time(state.attempts)
            state.attempts.storing = True

    def save_scores(self, claim: Claim, window: int, scores: bytes) -> bool:
        known = self._begun(self._writable(claim, unknown=LeaseLost))
        self.state.has_scored = True
        others = self.checkpoint_bytes() - len(known.scores.get(window, b""))
        if others + len(scores) > CHECKPOINT_BYTES:
            known.spilled = True
            return False
        if window not in known.scores:
            self._advance(known)
        known.scores[window] = scores
        return True

    def _advance(self, known: Attempts) -> None:
        known.crashes, known.errors = min(known.crashes, 1), 0

    def saved_scores(self, claim: Claim) -> dict[int, bytes]:
        state = self.state.shards.get(claim.shard.name)
        return state.attempts.scores if state and state.attempts else {}

    def complete(self, claim: Claim, receipt: Receipt) -> int:
        state = self.state.shards.get(claim.shard.name)
        if state is None or state.receipt != receipt:
            try:
                writable = self._writable(claim, unknown=RunUnknown)
                self._note_time(self._begun(writable))
                self._done(writable, receipt)
            except LeaseLost:
                self.state.refused_outputs += 1
                raise
        return self._open()

    def release(self, claim: Claim) -> None:
        if state := self._ours(claim):
            self._count(state, attempts=-1, crashes=-1)
            self._wait(state)

    def retry_later(self, claim: Claim, error: str, traceback: str, *, after_seconds: int) -> int:
        if state := self._ours(claim, error):
            self._count(state, crashes=-1, errors=1)
            self._fail_or_wait(state, self._begun(state).errors, MAX_ERRORS, least=after_seconds * 1000)
        return self._open()

    def record_crash(self, claim: Claim, error: str, traceback: str) -> int:
        if state := self._ours(claim, error):
            self._fail_or_wait(state, self._begun(state).crashes, MAX_CRASHES)
        return self._open()

    def fail(self, claim: Claim, error: str, traceback: str) -> int:
        if state := self._ours(claim, error):
            self._give_up(state)
        return self._open()

    def report_crash(self, run_id: str, name: str, owner: str, error: str) -> int:
        state = self.state.shards.get(name)
        if state and state.attempts and state.attempts.owner == owner:
            state.attempts.error = error
            if state.place == "running":
                self._note_time(state.attempts)
                self._end_token(state)
                self._fail_or_wait(state, state.attempts.crashes, MAX_CRASHES, backoff=0)
        return self._open()

    # --- publication ---

    def begin_publishing(self, run_id: str) -> int | None:
        if self.state.cancelled:
            return None
        self.state.publishing = True
        return self.state.receipts_version

    def record_publication(self, run_id: str, publication: Publication, *, version: int | None) -> bool:
        self.state.publishing = False
        is_current = version in (None, self.state.receipts_version)
        self.state.publication = publication if is_current else None
        if is_current:
            self.state.cancelled = False
        if is_current and not self._open():
            self.state.paused = None
        return is_current

    def withdraw_publication(self, run_id: str) -> None:
        self.state.publication = None

    # --- helpers ---

    def checkpoint_bytes(self) -> int:
        known = [state.attempts for state in self.state.shards.values() if state.attempts]
        held = sum(len(scores) for attempts in known for scores in attempts.scores.values())
        return held - self.forgotten_bytes

    def _in(self, *places: str) -> list[tuple[str, ShardState]]:
        return [(name, state) for name, state in self.state.shards.items() if state.place in places]

    def _open(self) -> int:
        return len(self._in("waiting", "sent", "running"))

    def _queued(self, receipts: Iterable[Receipt]) -> list[tuple[ShardState, Receipt]]:
        queued = dict(self._in("waiting", "sent"))
        return [(queued[receipt.shard], receipt) for receipt in receipts if receipt.shard in queued]

    def _writable(self, claim: Claim, *, unknown: type[Exception]) -> ShardState:
        """Return the shard if the claim may still write to it.

        A claim may write if its token is the shard's newest. It may also write if no worker holds the shard and the
        token is newer than any in the ledger. Raises LeaseLost if it may not write, and `unknown` if there is no
        shard.
        """
        state = self.state.shards.get(claim.shard.name)
        if state is None:
            raise unknown
        newest = state.attempts.token if state.attempts else None
        is_forgotten = int(claim.token.partition("-")[0]) > self.fence
        if state.place in ("done", "failed") or newest == f"ended {claim.token}":
            raise LeaseLost
        if newest != claim.token and (not is_forgotten or state.place == "running"):
            raise LeaseLost
        return state

    def _ours(self, claim: Claim, error: str = "") -> ShardState | None:
        """End the attempt of this claim. Returns the shard, or None if the claim is stale or the shard has failed."""
        state = self.state.shards.get(claim.shard.name)
        if state is None or state.attempts is None or state.attempts.token != claim.token:
            return None
        state.attempts.error = error or state.attempts.error
        if state.place == "failed":
            return None
        self._note_time(state.attempts)
        self._end_token(state)
        return state

    def _claim(self, state: ShardState) -> Claim:
        known = self._begun(state)
        return Claim(
            run_id=self.spec.run_id,
            shard=state.record,
            spec=self.spec,
            token=str(known.token),
            attempt=known.attempts,
            spilled=known.spilled,
        )

    def _begun(self, state: ShardState) -> Attempts:
        state.attempts = state.attempts or Attempts()
        return state.attempts

    def _count(self, state: ShardState, *, attempts: int = 0, crashes: int = 0, errors: int = 0) -> None:
        known = self._begun(state)
        known.attempts, known.crashes = known.attempts + attempts, known.crashes + crashes
        known.errors += errors

    def _crash(self, state: ShardState, error: str) -> None:
        known = self._begun(state)
        known.error, known.rows, known.spared, known.noted = error, 0, False, None
        known.storing = False

    def _end_token(self, state: ShardState) -> None:
        known = self._begun(state)
        known.token, known.rows, known.spared, known.noted = f"ended {known.token}", 0, False, None
        known.storing = False

    def _note_time(self, known: Attempts) -> None:
        if known.noted is not None:
            since = max(known.noted, self.state.counted.get(known.owner or "", 0))
            self.state.worker_ms += max(0, min(self.now - since, LEASE))
            if known.owner:
                self.state.counted[known.owner] = self.now
        known.noted = self.now

    def _bring_closer(self, *, by: int) -> None:
        """Adapt recorded times after the clock went back by this many ms since the last sweep."""
        for _, state in self._in("waiting"):
            if state.at > self.now:
                state.at = max(self.now, state.at - by)
        for _, state in self._in("sent"):
            state.at = min(state.at, self.now)
        for _, state in self._in("running"):
            state.at = min(state.at, self.now + LEASE)

    def _expire(self, state: ShardState, *, was_away: bool, looked: int) -> None:
        known = self._begun(state)
        if was_away and state.at > looked and not known.spared:
            known.spared = True
            self._run(state)
            return
        self._crash(state, "The lease ended without a renewal.")
        if known.crashes >= MAX_CRASHES:
            self._give_up(state)
        else:
            self._wait(state)

    def _fail_or_wait(
        self, state: ShardState, tries: int, limit: int, *, backoff: int = BACKOFF, least: int = 0
    ) -> None:
        if tries >= limit:
            self._give_up(state)
        else:
            self._wait(state, max(least, min(MAX_BACKOFF, backoff * 4 ** max(0, tries - 1))))

    def _run(self, state: ShardState) -> None:
        state.place, state.at = "running", self.now + LEASE

    def _wait(self, state: ShardState, ms: int = 0) -> None:
        state.place, state.at = "waiting", self.now + ms

    def _refusal(self, state: ShardState, owner: str, number_format: str) -> Refusal | None:
        if self.state.paused is not None:
            return Refusal.PAUSED
        is_other = number_format and self.state.number_format not in (None, number_format)
        may_change = not self.state.has_scored and not self._in("running", "done")
        if is_other and not may_change:
            return Refusal.FORMAT
        others = self._scoring(but=state) - {owner}
        return Refusal.FULL if self.state.max_workers is not None and len(others) >= self.state.max_workers else None

    def _scoring(self, *, but: ShardState | None = None) -> set[str]:
        """Return the workers that score a shard other than `but`."""
        running = [(name, self._begun(state)) for name, state in self._in("running") if state is not but]
        return {known.owner or name for name, known in running if not known.storing}

    def _free_places(self) -> int:
        if self.state.max_workers is None:
            return len(self.state.shards)
        return max(0, self.state.max_workers - len(self._scoring()) - len(self._in("sent")))

    def _wait_again(self, state: ShardState) -> None:
        """Queue a shard whose message is gone."""
        state.place, state.at = "waiting", self.now if state.attempts else NEVER_TRIED

    def _give_up(self, state: ShardState) -> None:
        state.place, state.at = "failed", 0

    def _done(self, state: ShardState, receipt: Receipt) -> int:
        state.place, state.at, state.receipt, state.attempts = "done", 0, receipt, None
        self.state.receipts_version += 1
        return 1

    def _undone(self, state: ShardState) -> None:
        if state.receipt:
            state.receipt = self.state.publication = None
            self.state.receipts_version += 1
