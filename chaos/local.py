"""`producer run` as a victim: two run at a time, and any of their processes may be killed at any time.

If the command itself is killed, it is run again, as its user would. When it ends, its output is compared with a run
without faults.
"""

import random
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil

from chaos.faults import Broken, Fault, Kind, Planned, Promise
from chaos.place import Variant, put_base
from chaos.runs import run_command
from chaos.victims import Service, Victim
from support.outputs import data_digests

_KILL_SECONDS = 180.0  # kill a run's processes for this long: progress is promised only if faults end
_SECONDS = 300.0  # limit for each run
_AGAIN = "Run the same command again later"  # output of a command if its Redis is killed before the run is enqueued


@dataclass(kw_only=True)
class _LocalRun:
    variant: Variant
    output: Path
    service: Service
    began_at: float
    was_killed: bool = False


class LocalRuns:
    """The `producer run` commands of a storm, two at a time. `victim` plans the kills of their processes."""

    def __init__(
        self,
        folder: Path,
        variants: tuple[Variant, ...],
        model: Path,
        environment: dict[str, str],
        plans: Iterator[Planned],
        rng: random.Random,
    ) -> None:
        self.victim = Victim(plans)
        self.published = 0
        self._folder = folder
        self._variants = variants
        self._model = model
        (folder / "tmp").mkdir(parents=True)
        self._environment = environment | {"SHARDSIFT_STATE_DIR": str(folder / "state"), "REDIS_URL": ""}
        self._environment |= {"TMPDIR": str(folder / "tmp")}  # the folder of the Redis socket
        self._rng = rng
        self._runs: list[_LocalRun] = []
        self._begun = 0

    def tick(self, now: float, undisturbed: dict[str, dict[str, str]], *, begins: bool) -> Iterator[Fault | Broken]:
        while begins and len(self._runs) < 2:
            self._begin(now)
        self.victim.at_work(now)
        may_kill = bool(self._runs) and all(now - run.began_at < _KILL_SECONDS for run in self._runs)
        if may_kill and self.victim.due(now) and (killed := self._kill()):
            yield Fault(kind=Kind.LOCAL, at=now, victim=killed)
        for run in list(self._runs):
            if now - run.began_at > _SECONDS:
                yield Broken(Promise.NOT_PUBLISHED, f"{run.output}, after {_SECONDS:.0f} s")
            elif run.service.is_running:
                continue
            elif run.was_killed or (run.service.process.returncode and _AGAIN in run.service.log.read_text()[-500:]):
                run.was_killed = False
                run.service.start_again()
                continue
            elif run.service.process.returncode:
                code, said = run.service.process.returncode, run.service.log.read_text()[-500:]
                yield Broken(Promise.NOT_PUBLISHED, f"{run.output}: exit code {code}: {said}")
            elif data_digests(run.output) != undisturbed[run.variant.name]:
                yield Broken(Promise.OTHER_BYTES, str(run.output))
            self.published += 1
            self._runs.remove(run)

    @property
    def are_over(self) -> bool:
        return not self._runs

    def stop(self) -> None:
        for run in self._runs:
            run.service.stop()

    def _begin(self, now: float) -> None:
        self._begun += 1
        variant = self._variants[self._begun % len(self._variants)]
        output = self._folder / "out" / str(self._begun)
        put_base(variant, output)
        command = [*run_command("run", variant, self._model, str(output)), "--workers", "1"]
        log = self._folder / "logs" / f"run-{self._begun}.log"
        service = Service(command, environment=self._environment, log=log)
        service.start()
        self._runs.append(_LocalRun(variant=variant, output=output, service=service, began_at=time.time()))

    def _kill(self) -> str:
        """Kill a random process of these runs. Returns the end of its command line. Empty if none was killed."""
        found = [process for process in psutil.process_iter() if self._is_ours(process)]
        if not found:
            return ""
        process = self._rng.choice(found)
        try:
            what = " ".join(process.cmdline()[-6:])
            process.kill()
        except psutil.NoSuchProcess:
            return ""
        for run in self._runs:
            run.was_killed |= run.service.pid == process.pid
        return what

    def _is_ours(self, process: psutil.Process) -> bool:
        """Return whether a process is part of these runs.

        A Redis server overwrites its environment with its title, which has the path of its socket.
        """
        try:
            is_ours = process.environ().get("SHARDSIFT_STATE_DIR") == self._environment["SHARDSIFT_STATE_DIR"]
            return is_ours or str(self._folder) in " ".join(process.cmdline())
        except psutil.Error:
            return False
