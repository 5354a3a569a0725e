"""Power losses: do run after run, and let Redis lose power once in each, at a random moment.

    make power-loss TRIALS=300 SEED=1

After a power loss, the run must be published with the bytes of an undisturbed run, and each shard once. The operator may
only run the same enqueue again, and only if the ledger has lost the run. Several arenas work in parallel: each has a
Redis, a simulated fleet and a process of its own, because the product reads its settings from environment variables.
`power.py` simulates the power loss.
"""

import argparse
import logging
import os
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from multiprocessing import get_context
from pathlib import Path

from benchmarks.results import provenance_of, redis_server_here, write_results
from chaos.place import Variant, check_each_row_is_there_once, prepare
from chaos.power import Disk
from shardsift.fleet.ledger import Ledger
from shardsift.fleet.ledger.base import RUNS, Keys
from shardsift.fleet.process.broker import make_app
from shardsift.fleet.process.settings import read_settings
from shardsift.producer.planning.enqueue import enqueue
from shardsift.producer.planning.options import RunOptions
from shardsift.producer.planning.plan import Plan, plan_run
from support.injected_faults import STAND_IN
from support.outputs import data_digests, manifest_lines
from support.redis_servers import RedisServer, redis_server
from support.waiting import wait_until

_RESULTS = Path(__file__).parent / "results"
_SHARDS, _ROWS, _WINDOW_ROWS = 12, 24, 8
_WORKERS = 3
_SECONDS_A_BATCH = 0.02
_MOST_SECONDS = 60.0  # from the power loss until the run must be published
_LONGEST_PAUSE_SECONDS = 1.0  # from the failure until the server is started again
_SWEPT_SECONDS = 90.0  # keep a run in the sweep until every copy of the data that may be restored contains it
_LATEST_SHARE = 1.2  # latest time of the power loss, as a share of the scored rows; above 1 is after the publication
_REWRITTEN = 0.15  # share of trials in which Redis rewrites its file
_ENVIRONMENT = {
    "SHARDSIFT_LEASE_SECONDS": "2",
    "SHARDSIFT_SWEEP_SECONDS": "0.25",
    "SHARDSIFT_RESEND_SECONDS": "0.5",
}


@dataclass(frozen=True, kw_only=True)
class Trial:
    """One run with its power loss. `enqueues` is 1, plus one for each time that the ledger lost the run."""

    number: int
    was_published: bool  # before the power loss
    loss: str
    enqueues: int
    seconds_after: float  # from the server's first answer until the run is published
    broken: tuple[str, ...]


def main() -> int:
    options = _parser().parse_args()
    folder = Path(tempfile.mkdtemp(prefix="power-"))
    began = time.time()
    done = power_losses(folder, seed=options.seed, count=options.trials, arenas=options.arenas)
    found = provenance_of("chaos.power_loss")
    head = [found.command, f"{found.date}, commit {found.commit}, {found.machine.cpu}, {redis_server_here()}", ""]
    text = "\n".join([*head, *_lines(done, time.time() - began)]) + "\n"
    sys.stdout.write(text)
    if options.results:
        report = {"trials": [asdict(trial) for trial in done]}
        write_results(f"power-loss-seed-{options.seed}", found, report, _RESULTS)
    if any(trial.broken for trial in done):
        sys.stderr.write(f"Broken with seed {options.seed}. Logs, ledgers and outputs are in {folder}\n")
        return 1
    shutil.rmtree(folder)
    return 0


def power_losses(folder: Path, *, seed: int, count: int, arenas: int) -> list[Trial]:
    shares = [range(1 + arena, count + 1, arenas) for arena in range(arenas)]
    with ProcessPoolExecutor(arenas, mp_context=get_context("spawn"), max_tasks_per_child=1) as pool:
        running = [pool.submit(_trials, folder / str(number), seed, share) for number, share in enumerate(shares, 1)]
        return sorted((trial for one in running for trial in one.result()), key=lambda trial: trial.number)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="chaos.power_loss", description=__doc__)
    parser.add_argument("--trials", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1, help="determines when the power fails, and what is lost")
    parser.add_argument("--arenas", type=int, default=3, help="number of arenas that work in parallel")
    parser.add_argument("--results", action="store_true", help="write the figures to chaos/results")
    return parser


def _lines(done: Sequence[Trial], seconds: float) -> Iterator[str]:
    yield f"{len(done)} power losses in {seconds:.0f} s, of which"
    yield f"  {_count(done, 'cut')} cut the end of the append-only file, {_count(done, 'copy')} restored an older copy"
    yield f"  {sum(trial.enqueues > 1 for trial in done)} lost the run: the same enqueue restored it"
    yield f"  {sum(trial.was_published for trial in done)} happened after the run was published"
    waits = sorted(trial.seconds_after for trial in done)
    p50, p95 = waits[len(waits) // 2], waits[min(len(waits) - 1, int(len(waits) * 0.95))]
    yield f"published after Redis answered again: 50 % within {p50} s, 95 % within {p95} s, all within {waits[-1]} s"
    yield f"runs lost, doubled, or with different bytes: {sum(bool(trial.broken) for trial in done)}"
    yield from (f"  trial {trial.number}, {trial.loss}: {what}" for trial in done for what in trial.broken)


def _count(done: Sequence[Trial], word: str) -> int:
    return sum(word in trial.loss for trial in done)


def _trials(folder: Path, seed: int, numbers: Sequence[int]) -> list[Trial]:
    """Do the trials with these numbers, one after another. At the end, check all of their runs once more."""
    place = prepare(folder, shards=_SHARDS, rows=_ROWS, seed=seed)
    logging.basicConfig(filename=folder / "log", level=logging.INFO, format="%(asctime)s %(threadName)s %(message)s")
    scratch = folder / "scratch"
    scratch.mkdir()
    with redis_server(folder / "redis") as server:
        os.environ |= _ENVIRONMENT | {"REDIS_URL": server.url, "SHARDSIFT_SCRATCH_DIR": str(scratch)}
        with _Arena.opened(folder, place.variants[1], place.model, server) as arena:
            done = [arena.trial(number, random.Random(f"{seed} power {number}")) for number in numbers]
            return [replace(trial, broken=(*trial.broken, *arena.late_problems(trial.number))) for trial in done]


@dataclass(kw_only=True)
class _Run:
    plan: Plan
    began_at: float = field(default_factory=time.time)
    enqueues: int = 0

    @property
    def run_id(self) -> str:
        return self.plan.spec.run_id

    @property
    def output(self) -> Path:
        return Path(self.plan.spec.output_uri)


class _Arena:
    def __init__(self, folder: Path, variant: Variant, model: Path, server: RedisServer) -> None:
        self._folder = folder
        self._variant = variant
        self._server = server
        self._disk = Disk(server, folder / "copies")
        self._settings = read_settings()
        self._ledger = Ledger.connect(self._settings)
        self._app = make_app("producer", self._settings)
        self._plan = _plan(variant, model, folder / "out" / "0")
        self._runs: dict[int, _Run] = {}
        self._undisturbed: dict[str, str] = {}
        self._surprises: list[Exception] = []

    @classmethod
    @contextmanager
    def opened(cls, folder: Path, variant: Variant, model: Path, server: RedisServer) -> Iterator["_Arena"]:
        """Yield an arena whose fleet is running and has done one run without a power loss."""
        from chaos.simulated import SimulatedFleet  # here, because it creates the product's apps for the current Redis

        arena = cls(folder, variant, model, server)
        queue, work_log = arena._plan.spec.queue, folder / "work.log"
        fleet = SimulatedFleet(queue, workers=_WORKERS, seconds_a_batch=_SECONDS_A_BATCH, work_log=work_log)
        arena._surprises = fleet.surprises
        with fleet.at_work():
            arena._run_undisturbed()
            yield arena
        arena._app.close()
        arena._ledger.redis.close()

    def trial(self, number: int, rng: random.Random) -> Trial:
        run = self._begin(number)
        self._enqueue(run)
        if rng.random() < _REWRITTEN and self._disk.may_be_rewritten:
            self._ledger.redis.bgrewriteaof()
        self._wait_for_share(run, rng.uniform(0, _LATEST_SHARE))
        was_published = self._ledger.state(run.run_id).publication is not None
        loss = self._disk.fail(rng, began_at=run.began_at)
        time.sleep(rng.uniform(0, _LONGEST_PAUSE_SECONDS))
        self._server.start()
        began = time.time()
        broken = self._why_not_published(run) or self._problems(run)
        self._forget_old_runs()
        return Trial(
            number=number,
            was_published=was_published,
            loss=str(loss),
            enqueues=run.enqueues,
            seconds_after=round(time.time() - began, 2),
            broken=tuple(broken),
        )

    def late_problems(self, number: int) -> list[str]:
        """Check the run again, because later power losses may have restored a state in which it was not published."""
        run = self._runs[number]
        if self._is_enqueued(run) and (broken := self._why_not_published(run)):
            return [f"at the end: {what}" for what in broken]
        return [f"at the end: {what}" for what in self._problems_of_output(run)]

    def _begin(self, number: int) -> _Run:
        output = str(self._folder / "out" / str(number))
        run = self._runs[number] = _Run(plan=replace(self._plan, spec=replace(self._plan.spec, output_uri=output)))
        return run

    def _enqueue(self, run: _Run) -> None:
        run.enqueues += 1
        enqueue(run.plan, self._ledger, self._app, self._settings)

    def _wait_for_share(self, run: _Run, share: float) -> None:
        """Wait until this share of the rows is scored, or the run is published."""

        def has_come() -> bool:
            self._disk.tick()
            done = self._ledger.counts(run.run_id).rows_scored >= share * _SHARDS * _ROWS
            return done or self._ledger.state(run.run_id).publication is not None

        wait_until(has_come, description="the moment of the power loss", seconds=_MOST_SECONDS)

    def _run_undisturbed(self) -> None:
        run = self._begin(0)
        self._enqueue(run)
        broken = self._why_not_published(run)
        assert not broken, broken
        check_each_row_is_there_once(self._variant, run.output)
        self._undisturbed = data_digests(run.output)

    def _why_not_published(self, run: _Run) -> list[str]:
        """Wait for the publication. Enqueues the run again if the ledger has lost it, as an operator would.

        Returns the reason if it is not published in time. Empty if it is.
        """
        try:
            wait_until(lambda: self._is_published(run), description="it is published", seconds=_MOST_SECONDS)
        except AssertionError as late:
            counts, error = self._ledger.counts(run.run_id), self._ledger.state(run.run_id).publish_error
            return [f"{late}; {counts}, publish error: {error}, failures: {self._ledger.failures(run.run_id)}"]
        return []

    def _is_published(self, run: _Run) -> bool:
        self._disk.tick()
        if not self._is_enqueued(run):
            self._enqueue(run)
        return self._ledger.state(run.run_id).publication is not None

    def _is_enqueued(self, run: _Run) -> bool:
        return self._ledger.state(run.run_id).complete

    def _problems(self, run: _Run) -> Iterator[str]:
        yield from self._problems_of_output(run)
        counts, keys, client = self._ledger.counts(run.run_id), Keys(run.run_id), self._ledger.redis
        if (counts.shards, counts.done, counts.rows_in) != (_SHARDS, _SHARDS, _SHARDS * _ROWS):
            yield f"the ledger counts {counts}"
        if left := [*client.scan_iter(f"{keys.attempts('')}*"), *client.scan_iter(f"{keys.scores('')}*")]:
            yield f"attempts or checkpoints of done shards are left: {left}"
        if self._surprises:
            yield f"a thread raised {self._surprises.pop()!r}"

    def _problems_of_output(self, run: _Run) -> Iterator[str]:
        digests = data_digests(run.output)
        if digests != self._undisturbed:
            both = digests.keys() | self._undisturbed
            wrong = sorted(path for path in both if digests.get(path) != self._undisturbed.get(path))
            yield f"files differ from those of an undisturbed run: {wrong}"
        listed = Counter(str(line["shard"]) for line in manifest_lines(run.output))
        if listed != Counter(self._variant.shard_names):
            yield f"the manifest lists {listed}"

    def _forget_old_runs(self) -> None:
        """Remove old runs from the sweep, because hundreds of them would keep a core busy. Unfinished runs stay."""
        old = [run.run_id for run in self._runs.values() if time.time() - run.began_at > _SWEPT_SECONDS]
        over = [
            run_id for run_id in old if self._ledger.state(run_id).publication and not self._ledger.counts(run_id).open
        ]
        if over:
            self._ledger.redis.zrem(RUNS, *over)


def _plan(variant: Variant, model: Path, output: Path) -> Plan:
    plan = plan_run(
        RunOptions(
            input_uris=(str(variant.shards),),
            models=(str(model),),
            scorer=STAND_IN,
            dtype="float32",
            min_score=variant.min_score,
            output_uri=str(output),
        )
    )
    return replace(plan, spec=replace(plan.spec, window_rows=_WINDOW_ROWS))


if __name__ == "__main__":
    sys.exit(main())
