"""One run of a storm, from `producer enqueue` to its publication. If the command is killed, it is run again."""

import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from chaos.events import Event
from chaos.faults import Fault, Kind, Planned
from chaos.files import FileVictim
from chaos.place import Variant
from chaos.victims import Service
from support.injected_faults import STAND_IN
from support.processes import BIN

_TRIES = 60  # tries of one command; Redis may be down at each


@dataclass(kw_only=True)
class Run:
    """A run of a storm. `hub_repo` is empty if the output is a folder."""

    number: int
    variant: Variant
    output_uri: str
    hub_repo: str
    service: Service
    kill: Planned | None
    files: FileVictim | None
    first_event: int  # number of events before it began
    is_enqueued_again: bool
    started_at: float = field(default_factory=time.time)
    run_id: str = ""
    open_shards: set[str] = field(default_factory=set)
    published_at: float | None = None
    manifest_digest: str = ""  # at its publication
    is_put_back: bool = False  # its output was damaged or its ledger rewound, so it may be published again
    is_output_damaged: bool = False  # damaged, and not yet published again
    needs_repair: bool = False  # a power loss may have taken back the enqueue that repairs its output
    enqueues: int = 1

    def __post_init__(self) -> None:
        self.open_shards = self.variant.own_shards
        self.service.start()
        self._began_at = time.time()

    @property
    def may_be_enqueued_again(self) -> bool:
        """Whether the command may be run again now.

        An extension's id does not depend on its files. So if an input is replaced, the command would accept the other file.
        """
        return not (self.variant.base and self.files) or self.files.is_input_whole

    @property
    def is_enqueued(self) -> bool:
        return bool(self.run_id)

    def see(self, event: Event) -> bool:
        """Note an event. Returns whether it completed the last shard of the run that can be completed."""
        if event.what != "complete" or event.run != self.run_id or event.shard not in self.open_shards:
            return False
        self.open_shards.discard(event.shard)
        return self.open_shards == self.variant.poison

    def enqueue_again(self) -> None:
        self.run_id = ""
        self.needs_repair = False
        self._run_again()

    def see_damaged_output(self) -> None:
        self.is_put_back = self.is_output_damaged = True
        self.enqueue_again()

    def see_power_loss(self) -> None:
        """Note a power loss. The operator repeats the repair of a damaged output.

        The restored ledger may call the run published, as it was before the damage.
        """
        self.is_put_back = True
        self.needs_repair = self.is_output_damaged

    def tick(self, now: float, may_damage: Callable[["Run", Kind], bool]) -> Iterator[Fault]:
        """Inject the run's own faults: a kill of the producer until the run is enqueued, then faults of its files."""
        if self.files and (self.is_enqueued or not self.files.is_input_whole):
            yield from self.files.tick(now, self.open_shards, lambda kind: self.is_enqueued and may_damage(self, kind))
        if self.is_enqueued:
            return
        if self.service.is_running:
            if self.kill and now - self._began_at >= self.kill.after_seconds:
                self.kill = None
                self.service.signal_group(signal.SIGKILL)
                yield Fault(kind=Kind.PRODUCER, at=now, victim=f"run {self.number}")
            return
        if self.service.process.returncode == 0:
            if self.is_enqueued_again:  # while the run is in progress, which must change nothing
                self.is_enqueued_again = False
                self._run_again()
            else:
                self.run_id = self.service.log.read_text().splitlines()[-1].strip()
            return
        self._run_again()

    def stop(self) -> None:
        self.service.stop()

    def _run_again(self) -> None:
        self.enqueues += 1
        self._began_at = time.time()
        if self.enqueues > _TRIES:
            raise AssertionError(f"Run {self.number} cannot be enqueued:\n{self.service.log.read_text()[-2000:]}")
        self.service.start_again()


def run_command(command: str, variant: Variant, model: Path, output_uri: str, *, verify: bool = False) -> list[str]:
    """Return the `producer enqueue` or `producer run` command. With `verify`, it reads published files even if the sizes fit."""
    options: dict[str, object] = {
        "--input": variant.shards,
        "--model": model,
        "--scorer": STAND_IN,
        "--dtype": "float32",
        "--where": f"score >= {variant.min_score}",
        "--output": output_uri,
        "--target-file-size": variant.target_file_size,
    }
    arguments = [str(part) for option in options.items() for part in option]
    flags = ["--score-again", *(["--verify"] if verify else []), *(["--extend"] if variant.base else [])]
    return [str(BIN / "producer"), command, *arguments, *flags]
