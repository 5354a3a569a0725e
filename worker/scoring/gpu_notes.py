"""Remember for later processes what works and what fails on a GPU of this machine.

Some faults end the process that meets them, so only the next process can avoid them. Needs no torch.
"""

import hashlib
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

_MOST_DEATHS = 2  # in a row: the first may be a kill from outside
_DRIVER = Path("/proc/driver/nvidia/version")
logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class GpuNotes:
    """Remembers facts about a model on a GPU, each in a file of `folder`. Without `folder`, nothing is remembered.

    A fact holds only for the same `about`, driver and package versions. Each child process of a worker notes in
    `worker_folder` which way to run batches it is trying. If two children in a row die while they try a way, later
    processes avoid it. A restarted worker has a new `worker_folder`, so a kill of the whole worker does not count.
    """

    folder: Path | None = None
    worker_folder: Path | None = None
    about: tuple[str, ...] = ()  # the model and the GPU

    def find(self, fact: str) -> str | None:
        file = self.folder and self.folder / self._name(fact)
        return file.read_text("utf-8") if file and file.exists() else None

    def store(self, fact: str, found: str) -> None:
        try:
            if self.folder:
                self.folder.mkdir(parents=True, exist_ok=True)
                (self.folder / self._name(fact)).write_text(found, "utf-8")
        except OSError as error:
            logger.warning("%s cannot keep for later processes: %s (%s)", self.folder, found, error)

    @contextmanager
    def trying(self, way: str) -> Iterator[None]:
        """Note that this process is trying a way to run batches. The note stays if the process dies within the block."""
        deaths = self._deaths(way)
        if deaths:
            with deaths.open("a") as file:
                file.write("x")
        try:
            yield
        finally:
            if deaths:
                deaths.unlink(missing_ok=True)

    def fault_of(self, way: str) -> str | None:
        """Return why this way to run batches must be avoided. None if it may be tried."""
        deaths = self._deaths(way)
        if deaths and deaths.exists() and deaths.stat().st_size >= _MOST_DEATHS:
            self.store(way, f"{_MOST_DEATHS} processes in a row died while they tried it")
        found = self.find(way)
        return found and f"{found}. To try again, delete {self.folder}/{self._name(way)}"

    def _deaths(self, way: str) -> Path | None:
        return self.worker_folder and self.worker_folder / f"trial-{self._name(way)}"

    def _name(self, fact: str) -> str:
        driver = _DRIVER.read_text() if _DRIVER.exists() else ""
        versions = [version(package) for package in ("shardsift", "torch", "transformers")]
        return hashlib.sha256(repr((fact, self.about, driver, versions)).encode()).hexdigest()[:16]


FORGETFUL = GpuNotes()
