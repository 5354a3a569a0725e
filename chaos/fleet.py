"""The fleet of a storm: a Redis that may be killed, workers and machines with one proxy each, and finalizers."""

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import psutil
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from chaos.events import Event
from chaos.faults import Broken, Fault, Planned, Promise, Schedule
from chaos.local import LocalRuns
from chaos.place import Variant
from chaos.power import Disk
from chaos.runs import Run, run_command
from chaos.victims import Finalizer, RedisVictim, Service, Worker
from hubserver import HubServer
from shardsift.fleet.ledger import Ledger
from shardsift.fleet.process.settings import Settings
from support.injected_faults import InjectedFaults
from support.processes import BIN
from support.proxy import Network
from support.redis_servers import RedisServer, redis_server

_WORKERS_A_MACHINE = 2
_COPY_SECONDS = 2.0  # between two copies of Redis' data
_MARK = "SHARDSIFT_CHAOS"  # environment variable of all processes of a storm, which their children inherit


@dataclass(frozen=True, kw_only=True)
class FleetPlan:
    """The settings of a fleet. Leases are short. Many crashes are allowed, because a limit of three would fail every shard.

    A worker is a `worker serve`. A machine is a `worker start` without a model, with two workers.
    """

    workers: int = 3
    machines: int = 1
    finalizers: int = 2
    lease_seconds: float = 2.0
    sweep_seconds: float = 0.5
    resend_seconds: float = 1.0
    max_attempts: int = 1000
    window_rows: int = 8
    rows_a_batch: int = 4
    seconds_a_batch: float = 0.03


class ChaosFleet:
    def __init__(
        self,
        folder: Path,
        plan: FleetPlan,
        model: Path,
        hub: HubServer,
        server: RedisServer,
        schedule: Schedule,
    ) -> None:
        self.folder = folder
        self.plan = plan
        self._model = model
        self._hub = hub
        self._server = server
        self.faults = InjectedFaults(folder / "faults", notes_events=True)
        self.faults.use_stand_in(rows_a_batch=plan.rows_a_batch, seconds_a_batch=plan.seconds_a_batch)
        client = redis.Redis(
            unix_socket_path=str(server.socket),
            decode_responses=True,
            socket_timeout=1.0,
            retry=Retry(NoBackoff(), 0),
        )
        self.ledger = Ledger(client, Settings())
        disk = Disk(server, folder / "redis" / "copies", copy_seconds=_COPY_SECONDS)
        self.redis = RedisVictim(server, disk, schedule.of_redis(), schedule.is_rough, schedule.rng_of("power"))
        self.workers: list[Worker] = []
        self.machines: list[Worker] = []
        self.finalizers: list[Finalizer] = []
        self._operators: dict[int, Service] = {}  # number of a run → its `producer finalize` or `producer retry`

    def local_runs(self, variants: tuple[Variant, ...], schedule: Schedule) -> LocalRuns:
        orders = InjectedFaults(self.folder / "faults-of-local", window_rows=self.plan.window_rows)
        orders.use_stand_in(rows_a_batch=self.plan.rows_a_batch, seconds_a_batch=self.plan.seconds_a_batch)
        environment = self._environment("", "local") | orders.environment | {"SHARDSIFT_THREADS": "1"}
        folder = self.folder / "local"
        return LocalRuns(folder, variants, self._model, environment, schedule.of_local(), schedule.rng_of("local"))

    @classmethod
    @contextmanager
    def started(cls, folder: Path, plan: FleetPlan, model: Path, hub: HubServer, schedule: Schedule) -> Iterator[Self]:
        folder.mkdir()
        with ExitStack() as stack:
            server = stack.enter_context(redis_server(folder / "redis"))
            network = stack.enter_context(Network())
            fleet = cls(folder, plan, model, hub, server, schedule)
            stack.callback(fleet.ledger.redis.close)
            stack.callback(fleet._stop_producers)
            for number in range(1, plan.finalizers + 1):
                fleet._start_finalizer(f"finalizer-{number}", schedule, stack)
            for number in range(1, plan.workers + 1):
                fleet._start_worker(f"w{number}", network, schedule, stack)
            for number in range(1, plan.machines + 1):
                fleet._start_machine(f"m{number}", network, schedule, stack)
            yield fleet

    def see(self, event: Event) -> None:
        for victim in self._victims:
            victim.see(event)

    def tick(self, now: float) -> Iterator[Fault]:
        for victim in self._victims:
            yield from victim.tick(now)

    def run_ends(self, now: float) -> None:
        for finalizer in self.finalizers:
            finalizer.victim.run_ends(now)

    def calm_down(self) -> None:
        for victim in self._victims:
            victim.victim.calm_down()

    @property
    def unasked_ends(self) -> Counter[str]:
        """The number of unexpected process exits, by process and exit code."""
        victims: list[Worker | Finalizer] = [*self._data_side, *self.finalizers]
        return Counter(f"{one.name} with {code}" for one in victims for code in one.unasked_ends)

    def problems(self) -> list[Broken]:
        """Return the problems of workers and machines since the last call."""
        found = [Broken(Promise.LEFT_BEHIND, problem) for worker in self._data_side for problem in worker.problems]
        for worker in self._data_side:
            worker.problems.clear()
        return found

    @property
    def _victims(self) -> list[Worker | Finalizer | RedisVictim]:
        return [self.redis, *self.finalizers, *self._data_side]

    @property
    def _data_side(self) -> list[Worker]:
        return [*self.workers, *self.machines]

    def producer(self, variant: Variant, output_uri: str, name: str, *, verify: bool = False) -> Service:
        """Create the enqueue command of a run, without starting it."""
        orders = InjectedFaults(self.folder / "faults", window_rows=self.plan.window_rows)
        return Service(
            run_command("enqueue", variant, self._model, output_uri, verify=verify),
            environment={**self._environment(self._server.url, f"producer-{name}"), **orders.environment},
            log=self.folder / "logs" / f"enqueue-{name}.log",
        )

    def publish_without_failed(self, run: Run) -> None:
        """Run `producer finalize` when no shard is open, as an operator would. Repeats it if it fails."""
        if not self.ledger.counts(run.run_id).open:
            self._see_to(run, "finalize")

    def retry_failed(self, run: Run) -> None:
        """Run `producer retry` until no shard is failed, as an operator would after restoring an input."""
        if self.ledger.counts(run.run_id).failed:
            self._see_to(run, "retry")

    def is_seen_to(self, run: Run) -> bool:
        """Return whether an operator's command for this run is in progress."""
        service = self._operators.get(run.number)
        return service is not None and service.is_running

    def _see_to(self, run: Run, command: str) -> None:
        """Start this command. If it has failed, start it again. `retry` is started again even after a success."""
        service = self._operators.get(run.number)
        if service is None:
            service = self._operators[run.number] = self._command(run, command)
            service.start()
        elif not service.is_running and (service.process.returncode != 0 or command == "retry"):
            service.start_again()

    def _command(self, run: Run, command: str) -> Service:
        return Service(
            [str(BIN / "producer"), command, run.run_id],
            environment=self._environment(self._server.url, f"producer-{run.number}"),
            log=self.folder / "logs" / f"{command}-{run.number}.log",
        )

    def _stop_producers(self) -> None:
        for service in self._operators.values():
            service.stop()

    def processes(self) -> list[psutil.Process]:
        return [process for process in psutil.process_iter() if self._is_ours(process)]

    def _is_ours(self, process: psutil.Process) -> bool:
        try:
            return bool(process.environ().get(_MARK) == str(self.folder) and process.status() != psutil.STATUS_ZOMBIE)
        except psutil.Error:
            return False

    def _start_worker(self, name: str, network: Network, schedule: Schedule, stack: ExitStack) -> None:
        command = ["serve", "--name", name]
        environment = {"SHARDSIFT_MODEL": str(self._model)}
        self.workers.append(
            self._start_behind_proxy(name, command, environment, schedule.of_worker(name), network, stack)
        )

    def _start_machine(self, name: str, network: Network, schedule: Schedule, stack: ExitStack) -> None:
        command = ["start", "--workers", str(_WORKERS_A_MACHINE), "--name", name]
        self.machines.append(self._start_behind_proxy(name, command, {}, schedule.of_machine(name), network, stack))

    def _start_behind_proxy(
        self,
        name: str,
        command: list[str],
        environment: dict[str, str],
        plans: Iterator[Planned],
        network: Network,
        stack: ExitStack,
    ) -> Worker:
        proxy = network.proxy_to(self._server.socket)
        settings = self._environment(f"redis://127.0.0.1:{proxy.port}/0", name) | self.faults.environment
        settings |= {"SHARDSIFT_THREADS": "1", **environment}
        service = self._service([str(BIN / "worker"), *command], settings, name)
        worker = Worker(name, service, proxy, plans, self._redis_is_up)
        stack.callback(worker.stop)
        worker.service.start()
        return worker

    def _start_finalizer(self, name: str, schedule: Schedule, stack: ExitStack) -> None:
        command = [str(BIN / "producer"), "finalizer"]
        environment = self._environment(self._server.url, name) | self.faults.environment
        finalizer = Finalizer(
            name, self._service(command, environment, name), schedule.of_finalizer(name), self._redis_is_up
        )
        self.finalizers.append(finalizer)
        stack.callback(finalizer.stop)
        finalizer.service.start()

    def _redis_is_up(self) -> bool:
        return self.redis.is_up

    def _service(self, command: list[str], environment: dict[str, str], name: str) -> Service:
        return Service(command, environment=environment, log=self.folder / "logs" / f"{name}.log")

    def _environment(self, redis_url: str, name: str) -> dict[str, str]:
        plan, scratch = self.plan, self.folder / "scratch" / name
        scratch.mkdir(parents=True, exist_ok=True)
        return {
            **self._hub.client_env(self.folder / "hub-homes" / name, self._hub.token(name)),
            "REDIS_URL": redis_url,
            "SHARDSIFT_STATE_DIR": str(self.folder / "state"),
            "SHARDSIFT_SCRATCH_DIR": str(scratch),
            "SHARDSIFT_DTYPE": "float32",
            "SHARDSIFT_PARITY_ROWS": "0",
            "SHARDSIFT_LEASE_SECONDS": str(plan.lease_seconds),
            "SHARDSIFT_SWEEP_SECONDS": str(plan.sweep_seconds),
            "SHARDSIFT_RESEND_SECONDS": str(plan.resend_seconds),
            "SHARDSIFT_MAX_ATTEMPTS": str(plan.max_attempts),
            _MARK: str(self.folder),
        }
