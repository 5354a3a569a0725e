"""The ledger's methods for one attempt at a shard: claim it, renew the lease, store scores, and end the attempt."""

from contextlib import suppress
from typing import Any
from uuid import uuid4

import redis

from shardsift.fleet.errors import LeaseLost, RunUnknown
from shardsift.fleet.ledger.base import FINISHED, SHARD_JSON, Keys, LedgerBase, read_spec
from shardsift.fleet.ledger.records import Claim, Outcome, Refusal
from shardsift.fleet.process.redact import redacted
from shardsift.fleet.run.receipt import AttemptReport, Receipt

_BACKOFF_SECONDS = 5.0  # after the first error; each further error multiplies it by four
_MAX_BACKOFF_SECONDS = 600.0


class Attempts(LedgerBase):
    """The ledger's methods that make and end claims. A claim ends with its lease, unless `renew` extends it.

    The claim's fencing token shows the ledger whether the claim is stale.
    """

    def claim(
        self, run_id: str, shard_name: str, owner: str, *, nonce: str | None = None, number_format: str = ""
    ) -> Claim | Refusal:
        """Claim a shard for one lease. No two workers ever hold the same shard with valid tokens.

        `owner` names the worker. A worker runs one scoring process at a time, so a second claim of a shard by the same
        owner means that the first process crashed. A caller that lost the answer can repeat the call with the same
        `nonce`, from `new_nonce`, and gets the first claim again.

        The first claim with a `number_format` sets the run's format. Claims in another format are then refused. The
        format can still change while no score is stored and no worker holds a shard.
        """
        answer = self._run_script(
            "claim",
            Keys(run_id).of(shard_name),
            [shard_name, owner, self._lease_ms, self._max_attempts, nonce or new_nonce(), number_format],
        )
        if answer[0] != "claimed":
            return Refusal(answer[0])
        _, token, attempt, spilled, shard, spec = answer
        return Claim(
            run_id=run_id,
            shard=SHARD_JSON.validate_json(shard),
            spec=read_spec(run_id, spec),
            token=token,
            attempt=int(attempt),
            spilled=bool(spilled) or not self._checkpoint_bytes,
        )

    def renew(self, claim: Claim, *, rows: int, report: AttemptReport | None = None) -> bool:
        """Extend the lease. Stores the number of rows scored so far, and the worker's report on the attempt.

        Returns False if the run is paused: the caller must give the shard back. Raises LeaseLost if the claim is no
        longer valid, and RunUnknown if Redis has lost the run.
        """
        said = report.to_json() if report else ""
        answer = self._run_for(claim, "renew", self._lease_ms, rows, said)
        if answer == "unknown":
            raise _unknown(claim)
        held = f"{claim.what_in_full} is no longer held by this worker"
        if answer == "cancelled":
            raise LeaseLost(f"{held}: the run was cancelled.")
        if answer not in ("renewed", "paused"):
            raise LeaseLost(f"{held}: another attempt took it over.")
        return bool(answer == "renewed")

    def leave_device(self, claim: Claim) -> None:
        """Note that the attempt has nearly finished on its worker's device, and goes on to store the shard's files.

        From now on, the shard does not count towards the run's limit of workers. May run twice. Does nothing for a
        stale token.
        """
        self._run_for(claim, "leave_device", self._lease_ms)

    def save_scores(self, claim: Claim, window: int, scores: bytes) -> bool:
        """Store the scores of a window for a later attempt. Returns False if the run's checkpoints are full.

        `window` is the number of the window's first row. A second call for a window replaces its scores. Raises
        LeaseLost for a stale token.
        """
        answer = self._run_for(claim, "save_scores", window, scores, self._checkpoint_bytes)
        if answer == "lost":
            raise LeaseLost(f"{claim.what_in_full} is no longer held by this worker.")
        return bool(answer == "saved")

    def saved_scores(self, claim: Claim) -> dict[int, bytes]:
        """Return the scores of the windows that earlier attempts finished, by the number of the window's first row."""
        key = Keys(claim.run_id).scores(claim.shard.name)
        found = self.redis.execute_command("HGETALL", key, NEVER_DECODE=True)  # type: ignore[no-untyped-call]
        return {int(window): scores for window, scores in found.items()}

    def complete(self, claim: Claim, receipt: Receipt) -> int:
        """Record a shard as done. Returns the number of open shards, and wakes a finalizer if it is 0.

        May run twice. Raises LeaseLost for a stale token, and RunUnknown if Redis has lost the run.
        """
        answer, still_open = self._run_for(claim, "complete", receipt.to_json(), self._lease_ms)
        if answer == "unknown":
            raise _unknown(claim)
        if answer == "lost":
            raise LeaseLost(f"{claim.what_in_full} was finished by another attempt.")
        if not still_open:
            with suppress(redis.RedisError):  # the finalizer also checks without being woken
                self.redis.lpush(FINISHED, claim.run_id)
        return int(still_open)

    def release(self, claim: Claim) -> None:
        """Give a shard back after a stop. The attempt does not count."""
        self._end_attempt(claim, Outcome.STOPPED)

    def retry_later(self, claim: Claim, error: str, traceback: str, *, after_seconds: float | None = None) -> int:
        """Give a shard back after a transient error. After `max_errors` such errors it is failed.

        The back-off is 5, 20, 80, … s. `after_seconds` is a wait that a service asked for: the back-off is at least
        that long. Returns the number of open shards.
        """
        return self._end_attempt(claim, Outcome.ERROR, error, traceback, least_seconds=after_seconds or 0)

    def record_crash(self, claim: Claim, error: str, traceback: str) -> int:
        """Give a shard back after an unexpected error, which counts as a crash. After `max_attempts` crashes it is failed.

        Returns the number of open shards.
        """
        return self._end_attempt(claim, Outcome.CRASH, error, traceback)

    def fail(self, claim: Claim, error: str, traceback: str) -> int:
        """Record a non-retryable shard as failed. Returns the number of open shards."""
        return self._end_attempt(claim, Outcome.NON_RETRYABLE, error, traceback)

    def report_crash(self, run_id: str, shard_name: str, owner: str, error: str, traceback: str = "") -> int:
        """Record that the process that scored a shard for `owner` died. The shard can then be claimed at once.

        Otherwise, it would have to wait until the lease expires. Does nothing if `owner` does not hold the shard.
        Returns the number of open shards.
        """
        return self._end(run_id, shard_name, ["owner", owner, Outcome.CRASH, redacted(error), redacted(traceback)])

    def _end_attempt(
        self, claim: Claim, outcome: Outcome, error: str = "", traceback: str = "", *, least_seconds: float = 0
    ) -> int:
        ended = ["token", claim.token, outcome, redacted(error), redacted(traceback)]
        backoff_ms, least_ms = int(_BACKOFF_SECONDS * 1000), int(least_seconds * 1000)
        return self._end(claim.run_id, claim.shard.name, ended, backoff_ms, least_ms)

    def _end(self, run_id: str, shard_name: str, ended: list[str], backoff_ms: int = 0, least_ms: int = 0) -> int:
        """End an attempt.

        `ended` is ["token" or "owner", the token or owner, the outcome, the error, the traceback]. The back-off grows from
        `backoff_ms` with each attempt that ends so, and is at least `least_ms`.
        """
        limits = [self._max_attempts, self._max_errors, self._lease_ms, least_ms]
        arguments = [shard_name, *ended, backoff_ms, int(_MAX_BACKOFF_SECONDS * 1000), *limits]
        _, still_open = self._run_script("end_attempt", Keys(run_id).of(shard_name), arguments)
        return int(still_open)

    def _run_for(self, claim: Claim, script: str, *arguments: str | bytes | int) -> Any:
        keys = Keys(claim.run_id).of(claim.shard.name)
        return self._run_script(script, keys, [claim.shard.name, claim.token, *arguments])


def _unknown(claim: Claim) -> RunUnknown:
    return RunUnknown(
        f"The ledger has lost the run {claim.run_id}. Run the same `producer enqueue` again to rebuild it."
    )


def new_nonce() -> str:
    return uuid4().hex[:12]
