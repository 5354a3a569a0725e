"""The ledger's methods that read the progress and speed of a run, and the results of its shards."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from pydantic import TypeAdapter

from shardsift.fleet.ledger.base import RUNS, Keys, LedgerBase, batches, in_ms
from shardsift.fleet.ledger.records import Counts, Failure, Publication, RunningShard, RunState, Steering
from shardsift.fleet.run.receipt import ROW_COUNTS, AttemptReport, Histogram, Phase, Receipt, empty_histogram

# The speed of a run. `lua/prelude.lua` counts the rows scored in each slot of ten seconds.
#
# Only slots in which a worker held a shard count, so that time without workers does not make a run look slow. If a
# worker stopped early in a slot, only the time for which workers held shards counts.

_SLOT_MS = 10_000  # as in lua/prelude.lua
_SLOTS = 30


@dataclass(frozen=True, kw_only=True)
class Pace:
    """The rows scored and the seconds in which workers held shards, in the last five minutes and in total.

    A row that was scored again after a crash counts once. Rows of shards that were restored from receipts do not count.
    """

    rows_lately: int = 0
    seconds_lately: float = 0.0
    rows: int = 0
    seconds: float = 0.0
    idle_seconds: float | None = None  # since a row was last scored; None before the first row
    queued_seconds: float | None = None  # since a command, or the repair of a damaged file, last queued shards

    @property
    def rows_per_second_lately(self) -> float:
        return self.rows_lately / self.seconds_lately if self.seconds_lately else 0.0

    @property
    def rows_per_second(self) -> float:
        return self.rows / self.seconds if self.seconds else 0.0


def read_pace(run: Mapping[str, str], *, now_ms: int, end_ms: int) -> Pace:
    """Compute the pace from the run's fields in Redis.

    `end_ms` is the time at which the last shard ended, or now if one is open.
    """
    queued_seconds = _seconds_since(run.get("queued_ms"), now_ms)
    if "started_ms" not in run:
        return Pace(queued_seconds=queued_seconds)
    begin_ms = int(run["started_ms"])
    lately = _slots_lately(run, now_ms // _SLOT_MS)
    work_ms = min(end_ms - begin_ms, int(run.get("slots", 0)) * _SLOT_MS, int(run.get("worker_ms", 0)))
    return Pace(
        rows_lately=sum(lately.values()),
        seconds_lately=sum(_seconds_of(slot, begin_ms, end_ms) for slot in lately),
        rows=int(run.get("rows_scored", 0)),
        seconds=max(0, work_ms) / 1000,
        idle_seconds=_seconds_since(run.get("advanced_ms"), now_ms),
        queued_seconds=queued_seconds,
    )


def _slots_lately(run: Mapping[str, str], newest: int) -> dict[int, int]:
    """Return the number of rows scored in each of the last 30 slots of ten seconds, by slot.

    Ignores slots after `newest`: they were counted before Redis's clock was set back.
    """
    noted = (run[field].split(":") for field in run if field.startswith("pace:"))
    return {int(slot): int(rows) for slot, rows in noted if newest - _SLOTS < int(slot) <= newest}


def _seconds_of(slot: int, begin_ms: int, end_ms: int) -> float:
    return max(0, min((slot + 1) * _SLOT_MS, end_ms) - max(slot * _SLOT_MS, begin_ms)) / 1000


_FAILURE, _STEERING, _PUBLICATION = TypeAdapter(Failure), TypeAdapter(Steering), TypeAdapter(Publication)


def read_state(run: Mapping[str, str]) -> RunState:
    """Read the state from the run's fields in Redis. No fields give the state of an unknown run."""
    published = run.get("published")
    return RunState(
        complete="complete" in run,
        cancelled="cancelled" in run,
        replaced_by=run.get("cancelled") or None,
        paused=run.get("paused"),
        number_format=run.get("format"),
        steering=_STEERING.validate_python(run),
        publication=_PUBLICATION.validate_json(published) if published else None,
        publish_error=run.get("publish_error"),
        publish_failed="publish_failed" in run,
    )


class Results(LedgerBase):
    """The ledger's methods that read the state of runs. They may be called at any time, even while shards change."""

    def state(self, run_id: str) -> RunState:
        return read_state(self._fields(Keys(run_id).run))

    def counts(self, run_id: str) -> Counts:
        return self.progress(run_id)[1]

    def progress(self, run_id: str) -> tuple[RunState, Counts, Pace]:
        """Read the state, the counts and the pace of a run at one moment."""
        keys = Keys(run_id)
        pipeline = self.redis.pipeline()
        for key in (keys.waiting, keys.sent, keys.running):
            pipeline.zcard(key)
        pipeline.hlen(keys.receipts)
        pipeline.scard(keys.failed)
        pipeline.hlen(keys.shards)
        pipeline.hgetall(keys.run)
        pipeline.zrange(keys.running, 0, -1)
        pipeline.zscore(RUNS, run_id)
        pipeline.time()
        waiting, sent, running, done, failed, known, run, names, listed, time = pipeline.execute()
        now_ms = in_ms(time)
        shards = int(run.get("shards", known))  # as all_shards in lua/prelude.lua
        queued = shards - running - done - failed
        end_ms = now_ms if queued + running else int(run.get("finished_ms", now_ms))
        counts = Counts(
            shards=shards,
            queued=queued,
            running=running,
            done=done,
            failed=failed,
            rows_running=self._rows_running(keys, names),
            worker_seconds=int(run.get("worker_ms", 0)) / 1000,
            stored_bytes=int(run.get("stored_bytes", 0)),
            failed_attempts=int(run.get("failed_attempts", 0)),
            tokens=int(run.get("tokens", 0)),
            phase_seconds={phase: int(run.get(f"phase_ms:{phase}", 0)) / 1000 for phase in Phase},
            seconds=_run_seconds(run, open_shards=queued + running, now_ms=now_ms),
            is_whole=listed is not None and known == shards and waiting + sent == queued,
            **{field: int(run.get(field, 0)) for field in ROW_COUNTS},
        )
        return read_state(run), counts, read_pace(run, now_ms=now_ms, end_ms=end_ms)

    def running_shards(self, run_id: str) -> list[RunningShard]:
        """List the shards that workers hold now. The lease that expires first comes first."""
        keys = Keys(run_id)
        ends: Any = self.redis.zrange(keys.running, 0, -1, withscores=True)
        ends_ms = {str(name): float(end_ms) for name, end_ms in ends}
        pipeline = self.redis.pipeline()
        for name in ends_ms:
            pipeline.hmget(keys.attempts(name), "owner", "rows", "attempts", "noted_ms", "report")
        pipeline.time()
        *found, now = pipeline.execute()
        now_ms = in_ms(now)
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

    def histograms(self, run_id: str) -> dict[str, Histogram]:
        """Return the histograms of the scores of done shards, by score column."""
        spec = self.spec(run_id)
        empty = {
            column: empty_histogram(spec.scorings[index].function_to_apply)
            for column, (index, _) in spec.charted.items()
        }
        rows_by_bin: dict[str, dict[int, int]] = {column: {} for column in empty}
        for field, rows in self._fields(Keys(run_id).histograms).items():
            number, _, column = field.partition(":")
            if column in empty and int(rows) > 0:
                rows_by_bin[column][int(number)] = int(rows)
        return {
            column: replace(histogram, rows_by_bin=dict(sorted(rows_by_bin[column].items())))
            for column, histogram in empty.items()
        }

    def error_reasons(self, run_id: str) -> dict[str, int]:
        """Count the errored rows of done shards by reason, most frequent first."""
        return self._rows_by_name(Keys(run_id).errored)

    def fields_left_out(self, run_id: str) -> dict[str, int]:
        """Count, for each field that the output lacks, the rows of done shards that have it.

        The most frequent comes first.
        """
        return self._rows_by_name(Keys(run_id).left_out)

    def _rows_by_name(self, key: str) -> dict[str, int]:
        rows = {name: int(rows) for name, rows in self._fields(key).items()}
        return dict(sorted(rows.items(), key=lambda one: (-one[1], one[0])))

    def receipts(self, run_id: str) -> Iterator[Receipt]:
        return self._receipts(Keys(run_id).receipts)

    def _receipts(self, key: str) -> Iterator[Receipt]:
        for batch in batches(sorted(str(name) for name in self.redis.hkeys(key))):
            for receipt in self.redis.hmget(key, batch):
                if receipt is not None:  # `retry` may have removed it meanwhile
                    yield Receipt.from_json(receipt)

    def some_receipts(self, run_id: str, most: int) -> list[Receipt]:
        """Return the receipts of up to `most` done shards, chosen at random."""
        found: Any = self.redis.hrandfield(Keys(run_id).receipts, most, withvalues=True)
        return [Receipt.from_json(receipt) for receipt in found[1::2]]

    def failures(self, run_id: str, *, most: int | None = None) -> list[Failure]:
        """List failed shards (the dead letters) in name order: all, or the first `most`."""
        names = sorted(str(name) for name in self.redis.smembers(Keys(run_id).failed))[:most]
        return self._failed_attempts(run_id, names)

    def retries(self, run_id: str, *, most: int, running: Iterable[RunningShard] = ()) -> list[Failure]:
        """List up to `most` open shards whose last attempt failed.

        Shards in `running` come first, then those whose message was sent, then waiting ones by due time. Leaves out a running
        shard whose current attempt has got further than all earlier ones.
        """
        keys, pipeline = Keys(run_id), self.redis.pipeline()
        pipeline.zrange(keys.sent, 0, most - 1)
        pipeline.zrangebyscore(keys.waiting, "(0", "+inf", start=0, num=most)
        sent, waiting = pipeline.execute()
        begun = {shard.name for shard in running if shard.attempt > 1}
        names = dict.fromkeys([*sorted(begun), *map(str, sent), *map(str, waiting)])
        found = self._failed_attempts(run_id, list(names))
        # The crashes of a running shard include the attempt in progress. A stop leaves no error.
        return [one for one in found if one.error and one.errors + one.crashes > (one.shard in begun)][:most]

    def _failed_attempts(self, run_id: str, shards: list[str]) -> list[Failure]:
        keys, pipeline = Keys(run_id), self.redis.pipeline()
        names = [field.name for field in fields(Failure)]
        for shard in shards:
            pipeline.hmget(keys.attempts(shard), names)
        noted = (dict(zip(names, values, strict=True)) for values in pipeline.execute())
        return [
            _FAILURE.validate_python(
                {name: value for name, value in one.items() if value is not None} | {"shard": shard}
            )
            for shard, one in zip(shards, noted, strict=True)
        ]

    def _rows_running(self, keys: Keys, names: Iterable[str]) -> int:
        pipeline = self.redis.pipeline()
        for name in names:
            pipeline.hget(keys.attempts(name), "rows")
        return sum(int(rows or 0) for rows in pipeline.execute())


def _seconds_since(then_ms: str | None, now_ms: int) -> float | None:
    """Return the seconds since a time.

    None if the time is unknown, or in the future because Redis's clock was set back.
    """
    return None if then_ms is None or int(then_ms) > now_ms else (now_ms - int(then_ms)) / 1000


def _run_seconds(run: dict[str, str], *, open_shards: int, now_ms: int) -> float:
    if "started_ms" not in run:
        return 0.0
    end_ms = now_ms if open_shards else int(run.get("finished_ms", run["started_ms"]))
    return max(0.0, (end_ms - int(run["started_ms"])) / 1000)
