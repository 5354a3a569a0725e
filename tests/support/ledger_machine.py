"""Compare the ledger with its model: make the same random calls to both, on a real server whose clock the test moves.

After each call, the answers and the complete state must be equal. `make ledger-model` runs many more steps.
"""

import argparse
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar

import hypothesis
import redis
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test
from pydantic import TypeAdapter
from redis.client import Pipeline

from shardsift.fleet.errors import LeaseLost, RunUnknown, UsageError
from shardsift.fleet.ledger import Claim, Ledger, Publication
from shardsift.fleet.ledger.base import REFUSED, Keys
from shardsift.fleet.ledger.records import Steering
from shardsift.fleet.process.settings import Settings
from shardsift.fleet.run.receipt import Receipt
from shardsift.fleet.run.spec import Shard
from shardsift.producer.local.redis import embedded_redis
from support.ledger_model import (
    CHECKPOINT_BYTES,
    LEASE,
    MAX_ERRORS,
    OUTAGE,
    Attempts,
    LedgerModel,
    RunState,
    ShardState,
)
from support.lua_branches import TAKEN, with_notes
from support.records import a_receipt, a_shard, a_spec, an_output_file

CLOCK = "test:now_ms"
START = 1_700_000_000_000
STEPS_PER_EXAMPLE = 60
NAMES = ["a", "b", "c/d"]
OWNERS = ["w1", "w2"]
FORMATS = ["", "float32", "bfloat16"]
LOSABLE = ["run", "shards", "waiting", "sent", "running", "failed", "receipts"]  # keys that Redis may delete
PUBLICATION = Publication(uri="x", commit="", shards=3)
_SHARD, _PUBLICATION = TypeAdapter(Shard), TypeAdapter(Publication)

newest_first = st.integers(0, 5)  # index of a claim, newest first; older claims are often stale
shards = st.sampled_from(NAMES)
some_shards = st.lists(shards, unique=True, min_size=1)
some_keys = st.lists(st.sampled_from(LOSABLE), unique=True, min_size=1)
moves = st.sampled_from([1, 5_000, 20_000, LEASE // 2, LEASE, OUTAGE + 1, 600_000, -5_000, -3_600_000])


class _Clocked:
    def time(self: Any, **_: Any) -> Any:
        return self.getrange(CLOCK, 0, -1)


class _ClockedPipeline(_Clocked, Pipeline):
    pass


class ClockedRedis(_Clocked, redis.Redis):
    """A client that reads the time from the key `CLOCK`, in scripts, in pipelines and in Python.

    If `branches` is a dict, it collects the branches of the scripts, and the scripts note in Redis which branches they
    take.
    """

    branches: dict[str, int] | None = None

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.set_response_callback("GETRANGE", lambda ms: (int(ms) // 1000, int(ms) % 1000 * 1000))

    def register_script(self, script: Any) -> Any:
        clock = f"local function now_ms()\n  return tonumber(redis.call('GET', '{CLOCK}'))\nend"
        clocked, times = re.subn(r"local function now_ms\(\)\n.*?\nend", clock, script, flags=re.DOTALL)
        assert times == 1, "The prelude must define now_ms exactly once."
        return super().register_script(clocked if self.branches is None else with_notes(clocked, self.branches))

    def pipeline(self, transaction: bool = True, shard_hint: Any = None) -> Pipeline:
        return _ClockedPipeline(self.connection_pool, self.response_callbacks, transaction, shard_hint)


class LedgerMachine(RuleBasedStateMachine):
    """A state machine for Hypothesis. `check_ledger` creates a subclass with its own `client` and `steps`."""

    client: ClockedRedis
    raw_pool: redis.ConnectionPool
    steps = 0
    taken: ClassVar[set[int]] = set()

    def __init__(self) -> None:
        super().__init__()
        self.spec = a_spec()
        self.run = self.spec.run_id
        self.ledger = Ledger(self.client, Settings(max_errors=MAX_ERRORS))
        self.ledger._checkpoint_bytes = CHECKPOINT_BYTES  # the setting has whole MiB
        self.model = LedgerModel(self.spec, START)
        self.claims: list[Claim] = []
        self.stored: dict[str, Receipt] = {}  # stored with the outputs, so they survive a loss of Redis
        self.backup: tuple[dict[bytes, bytes], Any] | None = None
        self.receipts: dict[str, Receipt] = {}
        self.receipts_may_go = False
        self.client.flushall()
        self.move_clock(0)
        self.enqueue()
        for name in NAMES:
            self.claim(name, "w1")

    def both(self, call: Callable[[Any], Any]) -> Any:
        """Make the same call to the ledger and the model. Returns their common answer."""
        expected, answer = outcome(call, self.model), outcome(call, self.ledger)
        assert answer == expected, f"The ledger answers {answer}, the model {expected}."
        return answer

    def claim_of(self, nth: int) -> Claim:
        return self.claims[-1 - nth % len(self.claims)]

    # --- workers ---

    @rule(name=shards, owner=st.sampled_from(OWNERS), number_format=st.sampled_from(FORMATS))
    def claim(self, name: str, owner: str, number_format: str = "") -> None:
        self._claim(name, owner, nonce=f"{len(self.claims):012}", number_format=number_format)

    @rule(owner=st.sampled_from(OWNERS))
    def claim_what_is_due(self, owner: str) -> None:
        """Claim due shards as in a fleet: a sweep sends messages, and a worker claims the shard of each message."""
        due = self.both(lambda ledger: ledger.take_due(self.run, room=2))
        for name in due.again + due.fresh:
            self.claim(name, owner)

    @rule(nth=newest_first)
    def claim_again(self, nth: int) -> None:
        """Claim again with the same nonce, as a worker does after the answer was lost."""
        claim = self.claim_of(nth)
        self._claim(claim.shard.name, "w1", nonce=claim.token.partition("-")[2])

    def _claim(self, name: str, owner: str, *, nonce: str, number_format: str = "") -> None:
        answer = self.both(lambda ledger: ledger.claim(self.run, name, owner, nonce=nonce, number_format=number_format))
        if isinstance(answer, Claim):
            self.claims.append(answer)

    @rule(nth=newest_first, rows=st.integers(0, 10))
    def renew(self, nth: int, rows: int) -> None:
        claim = self.claim_of(nth)
        self.both(lambda ledger: ledger.renew(claim, rows=rows))

    @rule(nth=newest_first)
    def leave_device(self, nth: int) -> None:
        claim = self.claim_of(nth)
        self.both(lambda ledger: ledger.leave_device(claim))

    @rule(nth=newest_first, window=st.integers(0, 2), size=st.sampled_from([0, 30, 60]))
    def save_scores(self, nth: int, window: int, size: int) -> None:
        claim = self.claim_of(nth)
        self.both(lambda ledger: ledger.save_scores(claim, window, bytes(size)))
        self.both(lambda ledger: ledger.saved_scores(claim))

    @rule(nth=newest_first, rows_kept=st.sampled_from([6, 5]))
    def complete(self, nth: int, rows_kept: int) -> None:
        claim = self.claim_of(nth)
        data = an_output_file(claim.shard.data_path, staged_path=f"staged/{claim.token}")
        receipt = a_receipt(self.run, claim.shard, data=data, rows_kept=rows_kept, rows_dropped=9 - rows_kept)
        self.stored[claim.shard.name] = receipt
        self.both(lambda ledger: ledger.complete(claim, receipt))

    @rule(
        nth=newest_first, how=st.sampled_from(["release", "retry later", "retry after 100 s", "record crash", "fail"])
    )
    def end_attempt(self, nth: int, how: str) -> None:
        claim = self.claim_of(nth)
        ends: dict[str, Callable[[Any], Any]] = {
            "release": lambda ledger: ledger.release(claim),
            "retry later": lambda ledger: ledger.retry_later(claim, "network", "", after_seconds=0),
            "retry after 100 s": lambda ledger: ledger.retry_later(claim, "429", "", after_seconds=100),
            "record crash": lambda ledger: ledger.record_crash(claim, "KeyError", ""),
            "fail": lambda ledger: ledger.fail(claim, "corrupt", ""),
        }
        self.both(ends[how])

    @rule(name=shards, owner=st.sampled_from(OWNERS))
    def report_crash(self, name: str, owner: str) -> None:
        self.both(lambda ledger: ledger.report_crash(self.run, name, owner, "signal 9"))

    # --- the clock and the sweep ---

    @rule(ms=moves)
    def move_clock(self, ms: int) -> None:
        self.model.now += ms
        self.client.set(CLOCK, self.model.now)

    @rule(room=st.integers(0, 3))
    def take_due(self, room: int) -> None:
        self.both(lambda ledger: ledger.take_due(self.run, room=room))

    @rule(seconds=st.sampled_from([0, 20]), names=some_shards)
    def queue_again(self, seconds: int, names: list[str]) -> None:
        self.both(lambda ledger: ledger.sent_before(self.run, seconds=seconds))
        self.both(lambda ledger: ledger.queue_again(self.run, names, seconds=seconds))

    # --- the producer and its user ---

    @rule(written=st.integers(0, len(NAMES)))
    def enqueue(self, written: int = len(NAMES)) -> None:
        """Enqueue the same run again, or only its first shards, as if the producer died midway."""
        self.both(lambda ledger: ledger.add_shards(self.spec, map(a_shard, NAMES[:written]), now=1.0))
        if written == len(NAMES):
            self.both(lambda ledger: ledger.mark_enqueued(self.run))

    @rule(reason=st.sampled_from(["", "cost"]))
    def pause(self, reason: str) -> None:
        self.both(lambda ledger: ledger.pause(self.run, reason=reason))

    @rule(max_workers=st.sampled_from([None, 1, 2]))
    def steer(self, max_workers: int | None) -> None:
        steering = Steering(max_workers=max_workers)
        self.both(lambda ledger: ledger.steer(self.run, steering))
        assert self.ledger.state(self.run).steering == steering

    @rule(what=st.sampled_from(["cancel", "resume", "retry", "retry changed", "forget messages", "replace the inputs"]))
    def ask_for(self, what: str) -> None:
        self.receipts_may_go = what == "retry changed"
        replaced = [a_shard(name, size_bytes=self.model.now) for name in NAMES]
        calls: dict[str, Callable[[Any], Any]] = {
            "cancel": lambda ledger: ledger.cancel(self.run),
            "resume": lambda ledger: ledger.resume(self.run),
            "retry": lambda ledger: ledger.retry(self.run),
            "retry changed": lambda ledger: ledger.retry(self.run, changed=NAMES),
            "forget messages": lambda ledger: ledger.forget_messages(self.run),
            "replace the inputs": lambda ledger: ledger.update_shards(self.run, replaced),
        }
        self.both(calls[what])

    # --- outputs and their publication ---

    @rule()
    def read_receipts(self) -> None:
        """Restore the receipts that are stored with the outputs."""
        self.both(lambda ledger: ledger.restore(self.run, list(self.stored.values())))

    @rule(names=some_shards, of_stored=st.booleans())
    def requeue(self, names: list[str], of_stored: bool) -> None:
        """Report lost files. With `of_stored`, only files of the receipts that are stored with the outputs."""
        self.receipts_may_go = True
        of = list(self.stored.values()) if of_stored else []
        self.both(lambda ledger: ledger.requeue(self.run, dict.fromkeys(names, "lost"), of=of))

    @rule(what=st.sampled_from(["begin", "record", "record any", "record older receipts", "withdraw"]))
    def publish(self, what: str) -> None:
        version = self.model.state.receipts_version
        calls: dict[str, Callable[[Any], Any]] = {
            "begin": lambda ledger: ledger.begin_publishing(self.run),
            "record": lambda ledger: ledger.record_publication(self.run, PUBLICATION, version=version),
            "record any": lambda ledger: ledger.record_publication(self.run, PUBLICATION, version=None),
            "record older receipts": lambda ledger: ledger.record_publication(
                self.run, PUBLICATION, version=version - 1
            ),
            "withdraw": lambda ledger: ledger.withdraw_publication(self.run),
        }
        self.both(calls[what])

    # --- Redis ---

    @rule()
    def back_up_redis(self) -> None:
        with redis.Redis(connection_pool=self.raw_pool) as raw:
            state = {key: raw.dump(key) for key in raw.scan_iter() if key != CLOCK.encode()}
        self.backup = state, self.model.saved()

    @rule(is_older=st.booleans())
    def lose_redis(self, is_older: bool) -> None:
        """Restart Redis empty, or with an older state as after a power failure. Workers keep their tokens."""
        self.receipts_may_go = True
        self.client.flushall()
        self.model.lose_all()
        if is_older and self.backup:
            with redis.Redis(connection_pool=self.raw_pool) as raw:
                for key, value in self.backup[0].items():
                    raw.restore(key, 0, value)
            self.model.put_back(self.backup[1])
        self.move_clock(0)

    @rule(lost=st.just(["run"]) | some_keys, dies=st.booleans())
    def lose_keys(self, lost: list[str], dies: bool) -> None:
        """Delete some keys of the run, then run the enqueue command again. Its producer may die midway.

        Without the key with the spec, no shard can be claimed.
        """
        self.receipts_may_go = True
        self.client.delete(*(getattr(Keys(self.run), name) for name in lost))
        self.model.lose(lost)
        if "run" in lost:
            self.claim(NAMES[0], OWNERS[0])
        self.both(lambda ledger: ledger.take_receipts(self.run))
        self.both(lambda ledger: ledger.add_shards(self.spec, map(a_shard, NAMES), now=1.0))
        if not dies:
            self.enqueue_again()

    @rule()
    def enqueue_again(self) -> None:
        taken = self.both(lambda ledger: ledger.take_receipts(self.run))
        self.both(lambda ledger: ledger.add_shards(self.spec, map(a_shard, NAMES), now=1.0))
        for receipts in (taken, list(self.stored.values())):
            self.both(lambda ledger, found=receipts: ledger.restore(self.run, found))
        self.both(lambda ledger: ledger.mark_enqueued(self.run))

    # --- invariants ---

    @invariant()
    def check(self) -> None:
        type(self).steps += 1
        if self.client.branches is not None:
            self.taken.update(map(int, self.client.smembers(TAKEN)))
        self.the_state_is_that_of_the_model()
        self.counts_agree_with_the_receipts()
        self.a_receipt_stays_as_it_is()

    def the_state_is_that_of_the_model(self) -> None:
        seen, expected = read_state(self.client, self.run), self.model.state
        for name in sorted({*seen.shards, *expected.shards}):
            assert seen.shards.get(name) == expected.shards.get(name), difference(seen.shards, expected.shards, name)
        assert seen == expected, f"Redis holds {seen}, the model {expected}."
        assert int(self.client.hget(Keys(self.run).run, "checkpoint_bytes") or 0) == self.model.checkpoint_bytes()

    def counts_agree_with_the_receipts(self) -> None:
        counts, states = self.ledger.counts(self.run), list(self.model.state.shards.values())
        done = [state.receipt for state in states if state.receipt]
        places = [state.place for state in states]
        assert (counts.shards, counts.done, counts.failed) == (len(states), len(done), places.count("failed"))
        assert counts.queued == places.count("waiting") + places.count("sent")
        assert counts.running == places.count("running")
        for rows in ("rows_in", "rows_kept", "rows_dropped", "rows_errored"):
            assert getattr(counts, rows) == sum(getattr(receipt, rows) for receipt in done), rows
        assert self.ledger.error_reasons(self.run) == summed(receipt.errors for receipt in done)
        assert counts.stored_bytes == sum(receipt.data.size_bytes + receipt.scores.size_bytes for receipt in done)
        rows_by_bin = summed(receipt.scorings[0].histogram.rows_by_bin for receipt in done)
        bins = self.client.hgetall(Keys(self.run).histograms)
        assert {name: int(rows) for name, rows in bins.items() if rows != "0"} == {
            f"{number}:score": rows for number, rows in rows_by_bin.items()
        }
        assert counts.rows_running == sum(
            state.attempts.rows for state in states if state.attempts and state.place == "running"
        )

    def a_receipt_stays_as_it_is(self) -> None:
        """Check that no receipt was replaced.

        Only `retry` of changed files, lost files and a loss of Redis remove a receipt.
        """
        now = {name: state.receipt for name, state in self.model.state.shards.items() if state.receipt}
        if not self.receipts_may_go:
            assert self.receipts.items() <= now.items()
        self.receipts, self.receipts_may_go = now, False

    def teardown(self) -> None:
        """Check that nothing is lost: after another enqueue and retry, every shard can be scored exactly once."""
        if sys.exc_info()[0] is None:
            self.enqueue()
            # A queued or running shard may have too many crashes, because Redis lost the key of the failed shards, or
            # because its worker came back. A claim moves it to the failed shards, so that it can be retried.
            self.ask_for("forget messages")
            for name in NAMES:
                self.claim(name, "w1")
            self.ask_for("retry")
            self.ask_for("resume")
            self.steer(None)
            self.ask_for("forget messages")
            self.move_clock(86_400_000)  # longer than the clock can have gone back since the last sweep
            due = self.both(lambda ledger: ledger.take_due(self.run, room=len(NAMES)))
            for name in due.again + due.fresh:
                self.claim(name, "w1")
                self.complete(0, rows_kept=6)
            assert self.ledger.counts(self.run).done == len(NAMES)
            self.the_state_is_that_of_the_model()


def summed(counts: Iterable[Mapping[Any, int]]) -> Counter[Any]:
    return sum(map(Counter, counts), Counter[Any]())


def outcome(call: Callable[[Any], Any], ledger: Ledger | LedgerModel) -> Any:
    """Make the call. Returns its result, or the class of its exception."""
    try:
        return call(ledger)
    except (LeaseLost, RunUnknown, UsageError) as error:
        return type(error)


def difference(seen: dict[str, ShardState], expected: dict[str, ShardState], name: str) -> str:
    return f"Shard {name}: Redis holds\n{seen.get(name)},\nthe model\n{expected.get(name)}."


def read_state(client: redis.Redis, run_id: str) -> RunState:
    """Read the state of the run from Redis. Fails unless each shard is in exactly one place."""
    keys = Keys(run_id)
    pipeline = client.pipeline()
    pipeline.hgetall(keys.run)
    pipeline.hgetall(keys.shards)
    for key in (keys.waiting, keys.sent, keys.running):
        pipeline.zrange(key, 0, -1, withscores=True)
    pipeline.smembers(keys.failed)
    pipeline.hgetall(keys.receipts)
    pipeline.hgetall(keys.taken)
    pipeline.hgetall(REFUSED)
    pipeline.hgetall(keys.counted)
    for name in NAMES:
        pipeline.hgetall(keys.attempts(name))
        pipeline.hgetall(keys.scores(name))
    run, records, waiting, sent, running, failed, receipts, taken, refused, counted, *rest = pipeline.execute()
    attempts = {name: read_attempts(*rest[2 * n : 2 * n + 2]) for n, name in enumerate(NAMES)}
    timed = {"waiting": waiting, "sent": sent, "running": running}
    found = [(name, place, int(at)) for place, names in timed.items() for name, at in names]
    found += [(name, "failed", 0) for name in failed] + [(name, "done", 0) for name in receipts]
    assert sorted(name for name, _, _ in found) == sorted(records), f"Each shard must be in exactly one place: {found}"
    return RunState(
        shards={
            name: ShardState(
                _SHARD.validate_json(records[name]), place, at, read_receipt(receipts.get(name)), attempts[name]
            )
            for name, place, at in found
        },
        has_spec="spec" in run,
        enqueued="complete" in run,
        taken={name: Receipt.from_json(receipt) for name, receipt in taken.items()},
        cancelled="cancelled" in run,
        paused=run.get("paused"),
        max_workers=int(run["max_workers"]) if "max_workers" in run else None,
        number_format=run.get("format"),
        has_scored="scored" in run,
        publication=_PUBLICATION.validate_json(run["published"]) if "published" in run else None,
        publishing="publishing_ms" in run,
        receipts_version=int(run.get("receipts_version", 0)),
        worker_ms=int(run.get("worker_ms", 0)),
        counted={owner: int(to) for owner, to in counted.items()},
        damaged={key.removeprefix("damaged:"): int(run[key]) for key in run if key.startswith("damaged:")},
        refused_outputs=int(refused.get("outputs of attempts that had lost their shard", 0)),
        refused_files=int(refused.get("stored files that were lost or damaged", 0)),
    )


def read_attempts(fields: dict[str, str], scores: dict[str, str]) -> Attempts | None:
    if not fields:
        assert not scores, "A shard without a record of attempts has a checkpoint."
        return None
    return Attempts(
        attempts=int(fields.get("attempts", 0)),
        crashes=int(fields.get("crashes", 0)),
        errors=int(fields.get("errors", 0)),
        token=fields.get("token"),
        owner=fields.get("owner"),
        error=fields.get("error", ""),
        spilled="spilled" in fields,
        spared="spared" in fields,
        storing="storing" in fields,
        rows=int(fields.get("rows", 0)),
        noted=int(fields["noted_ms"]) if "noted_ms" in fields else None,
        scores={int(window): blob.encode() for window, blob in scores.items()},
    )


@lru_cache
def read_receipt(content: str | None) -> Receipt | None:
    return Receipt.from_json(content) if content else None


def check_ledger(url: str, *, steps: int, seed: int) -> int:
    """Run at least `steps` steps on the server at `url`, and delete its data. Returns the number of steps.

    Raises on the first difference.
    """
    with (
        ClockedRedis.from_url(url, decode_responses=True) as client,
        closing(redis.ConnectionPool.from_url(url)) as raw_pool,
    ):
        machine = type("Machine", (LedgerMachine,), {"client": client, "raw_pool": raw_pool, "steps": 0})
        while machine.steps < steps:
            examples = min(100, -(-(steps - machine.steps) // STEPS_PER_EXAMPLE))
            hypothesis.seed(seed)(machine)
            try:
                run_state_machine_as_test(machine, settings=_settings(examples))
            except Exception as error:
                error.add_note(f"Found with seed {seed} after {machine.steps} steps: make ledger-model SEED={seed}")
                raise
            seed += 1
    return machine.steps


def _settings(examples: int) -> settings:
    return settings(
        max_examples=examples,
        stateful_step_count=STEPS_PER_EXAMPLE,
        database=None,
        deadline=None,
        print_blob=True,
        suppress_health_check=list(HealthCheck),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--most-not-taken", type=int, required=True, help="branches of the scripts")
    options = parser.parse_args()
    started = time.monotonic()
    branches = ClockedRedis.branches = {}
    with tempfile.TemporaryDirectory() as folder, embedded_redis(Path(folder)) as url:
        steps = check_ledger(url, steps=options.steps, seed=options.seed)
    seconds = time.monotonic() - started
    not_taken = [what for what, number in branches.items() if number not in LedgerMachine.taken]
    sys.stdout.write(f"{steps:,} steps from seed {options.seed} in {seconds:.0f} s: ledger and model agree.\n")
    sys.stdout.write(f"{len(not_taken)} of {len(branches)} branches of the scripts were not taken:\n")
    sys.stdout.writelines(f"  {what}\n" for what in not_taken)
    if len(not_taken) > options.most_not_taken:
        sys.exit(f"At most {options.most_not_taken} may be left out. Teach the machine the new ones.")


if __name__ == "__main__":
    main()
