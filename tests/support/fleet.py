"""A fleet on this machine: its own Redis, and worker and finalizer processes that a test starts and stops."""

import json
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from subprocess import CompletedProcess

from shardsift.fleet.ledger import Ledger
from shardsift.fleet.process.children import Child
from shardsift.fleet.process.settings import Settings
from shardsift.producer.local.redis import embedded_redis
from support.injected_faults import PYTHONPATH, STAND_IN
from support.processes import call_command, run_command, started
from support.waiting import wait_until


@dataclass
class Fleet:
    """A Redis and its processes, which all get `environment`.

    A test may extend it, for example with the settings of a Hub.
    """

    folder: Path
    redis_url: str
    environment: dict[str, str] = field(default_factory=dict)

    @property
    def ledger(self) -> Ledger:
        return Ledger.connect(Settings(redis_url=self.redis_url))

    def producer(self, *arguments: str | Path) -> CompletedProcess[str]:
        return run_command("producer", *arguments, environment=self.environment)

    def call_producer(self, *arguments: str | Path) -> CompletedProcess[str]:
        """Run a `producer` command within this process. See `call_command`."""
        return call_command("producer", *arguments, environment=self.environment)

    def enqueue(self, *arguments: str | Path) -> str:
        """Enqueue a run within this process. Returns the run's id."""
        done = self.call_producer("enqueue", *arguments)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def enqueue_stand_in(self, shards: Path, folder: Path, name: str, *options: str) -> str:
        """Enqueue a run into `out-NAME`, with a new model folder that only the stand-in scorer can load."""
        model = folder / name
        model.mkdir()
        (model / "config.json").write_text(json.dumps({"id2label": {"0": name}}))
        arguments = ("--input", shards, "--model", model, "--scorer", STAND_IN, "--output", folder / f"out-{name}")
        return self.enqueue(*arguments, "--keep-all", *options)

    def wait_until_published(self, run_id: str, *, seconds: float = 60) -> None:
        wait_until(lambda: self.ledger.state(run_id).publication, description="the run is published", seconds=seconds)

    def worker(
        self, *models: Path | str, name: str = "w1", environment: dict[str, str] | None = None
    ) -> AbstractContextManager[Child]:
        """Start one worker, without a supervisor that would restart it."""
        settings = {"SHARDSIFT_MODEL": json.dumps(list(map(str, models))), "SHARDSIFT_THREADS": "1"}
        return started(
            *("worker", "serve", "--name", name),
            environment={**self.environment, **settings, **(environment or {})},
            log=self.log(name),
        )

    def machine(
        self, *arguments: str | Path, name: str = "machine", environment: dict[str, str] | None = None
    ) -> AbstractContextManager[Child]:
        """Start a supervisor and its workers with `worker start`. `name` chooses the log file."""
        return started(
            *("worker", "start", *arguments),
            environment={**self.environment, **(environment or {})},
            log=self.log(name),
        )

    def finalizer(self, *, environment: dict[str, str] | None = None) -> AbstractContextManager[Child]:
        return started(
            "producer", "finalizer", environment={**self.environment, **(environment or {})}, log=self.log("finalizer")
        )

    def log(self, name: str) -> Path:
        return self.folder / "logs" / f"{name}.log"


@contextmanager
def new_fleet(folder: Path) -> Iterator[Fleet]:
    with embedded_redis(folder / "redis") as url:
        environment = {
            "REDIS_URL": url,
            "PYTHONPATH": PYTHONPATH,
            "SHARDSIFT_STATE_DIR": str(folder / "state"),
            "SHARDSIFT_SWEEP_SECONDS": "0.5",
            "SHARDSIFT_RESEND_SECONDS": "2",
            "SHARDSIFT_PARITY_ROWS": "0",  # saves seconds per start; the gate has its own tests
            "SHARDSIFT_TEST_PICTURES": "0",  # saves a second per publication
            "HF_HUB_OFFLINE": "1",
        }
        yield Fleet(folder=folder, redis_url=url, environment=environment)
