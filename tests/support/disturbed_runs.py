"""A run with injected faults, and the checks that must pass afterwards, whatever the faults were."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

import psutil

from shardsift.fleet.inputs.formats import without_ending
from shardsift.fleet.ledger.base import Keys
from shardsift.fleet.process.broker import make_app
from shardsift.fleet.process.children import Child, running
from shardsift.fleet.process.settings import Settings
from shardsift.producer.planning.enqueue import enqueue
from shardsift.producer.planning.options import RunOptions
from shardsift.producer.planning.plan import Plan, plan_run
from support.fleet import Fleet
from support.injected_faults import STAND_IN, InjectedFaults
from support.outputs import data_digests, manifest_lines
from support.processes import BIN
from support.waiting import wait_until

SHARDS, SHARD_ROWS, WINDOW_ROWS = 6, 24, 8
ALL_ROWS = SHARDS * SHARD_ROWS


@dataclass
class DisturbedRuns:
    """A run over `shards` into `output`. The processes of `fleet` have `faults`."""

    fleet: Fleet
    faults: InjectedFaults
    shards: Path
    model: Path
    output: Path
    undisturbed: Callable[
        [int, str | None], dict[str, str]
    ]  # rows of a window, and file size → files of a run without faults
    lease_seconds: float = 2.0
    scorer: str = STAND_IN
    window_rows: int = WINDOW_ROWS  # a command has no option for it
    target_file_size: str | None = None
    extends: bool = False
    unique: bool = False

    def enqueue(self) -> str:
        settings = Settings(redis_url=self.fleet.redis_url, resend_seconds=1)
        with make_app("test", settings) as app:
            return enqueue(self.plan(), self.fleet.ledger, app, settings).run_id

    def plan(self) -> Plan:
        options = RunOptions(
            input_uris=(str(self.shards),),
            models=(str(self.model),),
            scorer=self.scorer,
            dtype="float32",
            output_uri=str(self.output),
            target_file_size=self.target_file_size,
            extends=self.extends,
            unique=self.unique,
        )
        plan = plan_run(options)
        return replace(plan, spec=replace(plan.spec, window_rows=self.window_rows))

    def worker(self, name: str = "w1", **environment: str) -> AbstractContextManager[Child]:
        return self.fleet.worker(self.model, name=name, environment=self.environment | environment)

    def worker_in_a_container(self) -> AbstractContextManager[Child]:
        """Start a worker as process 1 of a PID namespace, with its own /proc."""
        settings = {"SHARDSIFT_MODEL": str(self.model), "SHARDSIFT_THREADS": "1"}
        return running(
            ["unshare", "--pid", "--fork", "--mount-proc", str(BIN / "worker"), "serve"],
            log=self.fleet.log("container"),
            stop_seconds=20,
            environment={**self.fleet.environment, **self.environment, **settings},
        )

    def finalizer(self, **environment: str) -> AbstractContextManager[Child]:
        return self.fleet.finalizer(environment=self.environment | environment)

    @contextmanager
    def served(self, *, workers: int = 1) -> Iterator[None]:
        """Run a finalizer and `workers` workers during the block."""
        with ExitStack() as stack:
            stack.enter_context(self.finalizer())
            for number in range(workers):
                stack.enter_context(self.worker(f"w{number + 1}"))
            yield

    def serve_until_published(self, run_id: str) -> None:
        with self.served():
            self.wait_until_published(run_id)

    def wait_until_published(self, run_id: str, *, seconds: float = 60) -> None:
        self.fleet.wait_until_published(run_id, seconds=seconds)

    def wait_for_rows(self, run_id: str, rows: int = 1) -> None:
        wait_until(lambda: self.faults.rows_scored() >= rows, description=f"{rows} rows are scored", seconds=60)

    def wait_for_sweeps(self, run_id: str, sweeps: int) -> None:
        """Wait until the finalizer has looked at the run `sweeps` more times."""
        seen = set()

        def swept() -> bool:
            seen.add(self.fleet.ledger.redis.hget(Keys(run_id).run, "looked_ms"))
            return len(seen) > sweeps

        wait_until(swept, description=f"{sweeps} sweeps")

    def manifest(self) -> list[dict[str, object]]:
        return manifest_lines(self.output)

    def attempts(self) -> set[int]:
        """Return the numbers of the attempts that finished the shards: {1} if no shard needed a second one."""
        return {int(str(line["attempt"])) for line in self.manifest()}

    def staged_files(self, run_id: str) -> list[Path]:
        return [path for path in (self.output / ".shardsift" / run_id / "staged").rglob("*") if path.is_file()]

    def check_each_row_scored_once(self, run_id: str) -> None:
        assert self.faults.rows_scored() == ALL_ROWS
        self.check_nothing_lost_nothing_twice(run_id)

    def check_nothing_lost_nothing_twice(self, run_id: str) -> None:
        """Check that every shard is done once, that the files equal an undisturbed run's, and that none is left open."""
        ledger = self.fleet.ledger
        counts = ledger.counts(run_id)
        lines = manifest_lines(self.output)
        assert (counts.done, counts.open, counts.failed) == (counts.shards, 0, 0)
        files = [path.name for path in self.shards.iterdir()]
        assert sorted(str(line["shard"]) for line in lines) == sorted(map(without_ending, files))
        assert data_digests(self.output) == self.undisturbed(ledger.spec(run_id).window_rows, self.target_file_size)
        own = [line for line in lines if line.get("run_id", run_id) == run_id]
        assert counts.rows_in == sum(int(str(line["rows_in"])) for line in own)
        assert ledger.redis.keys("shardsift:run:*:scores:*") == []
        assert ledger.redis.keys("shardsift:run:*:attempts:*") == []

    @property
    def environment(self) -> dict[str, str]:
        return {
            **self.faults.environment,
            "SHARDSIFT_DTYPE": "float32",
            "SHARDSIFT_LEASE_SECONDS": str(self.lease_seconds),
            "SHARDSIFT_RESEND_SECONDS": "1",
        }


def child_of(worker: Child) -> psutil.Process:
    """Return the process that owns the model: the worker's only child that multiprocessing spawned."""

    def found() -> list[psutil.Process]:
        children = psutil.Process(worker.pid).children()
        return [child for child in children if "spawn_main" in " ".join(child.cmdline())]

    return wait_until(found, description="the worker has a child")[0]


@contextmanager
def frozen_by_order(worker: Child) -> Iterator[psutil.Process]:
    """Wait until a fault has frozen the worker's child. After the block, resume the child if it still lives."""
    child = child_of(worker)
    wait_until(lambda: child.status() == psutil.STATUS_STOPPED, description="the worker is frozen", seconds=120)
    try:
        yield child
    finally:
        with suppress(psutil.NoSuchProcess):
            child.resume()
