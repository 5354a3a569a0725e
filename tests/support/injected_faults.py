"""The faults that `tests/inject` puts into all processes with this environment, and the scorer that they load."""

import importlib
import json
from dataclasses import dataclass, field
from operator import attrgetter
from pathlib import Path

_INJECT = Path(__file__).parents[1] / "inject"
ROOT = Path(__file__).parents[2]
PYTHONPATH = f"{_INJECT}:{ROOT}"  # with it, a process finds the stand-in
STAND_IN = "stand-in"  # its name for `--scorer`

# Places of faults that several tests use.
LAUNCH = "shardsift.worker.shard.window_scoring:WindowScoring.launch"
STAGE = "shardsift.fleet.storage.folder:FolderOutput.stage"
STORE_RECEIPT = "shardsift.fleet.storage.folder:FolderOutput.store_receipt"
COMPLETE = "shardsift.fleet.ledger.ledger:Ledger.complete"


@dataclass
class InjectedFaults:
    """The faults for all processes with `environment`. Add them before the processes start.

    `folder` holds the log of work, and tickets that limit how often each fault happens.
    """

    folder: Path
    clock_offset_seconds: float = 0.0
    window_rows: int | None = None  # of runs that these processes enqueue
    notes_events: bool = False
    _scorer: dict[str, object] | None = None
    _points: list[dict[str, str]] = field(default_factory=list)

    def use_stand_in(self, *, rows_a_batch: int = 4, seconds_a_batch: float = 0.02, load_seconds: float = 0.0) -> None:
        """Make workers score with `tests/inject/stand_in.py`, without torch, as if on a CPU."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self.set_device("cpu")
        self._scorer = {
            "work_log": str(self.work_log),
            "rows_a_batch": rows_a_batch,
            "seconds_a_batch": seconds_a_batch,
            "load_seconds": load_seconds,
            "device": str(self._device),
        }

    def set_device(self, kind: str) -> None:
        """Set the kind of device, such as `cuda`, of scorers that are loaded from now on."""
        self._device.write_text(kind)

    def at(
        self, place: str, moment: str, action: str, *, times: int = 1, passes: int = 0, program: str = "worker"
    ) -> None:
        """Do `action` (see `tests/inject/injected.py`) before or after a call of `module:Class.method`, `times` times.

        The first `passes` calls are left alone. Applies only to processes of `program`: "worker" (parent and child) or
        "producer" (with the finalizer). Raises AttributeError if the place does not exist, because a process that
        cannot find it would fail at its start.
        """
        module, _, path = place.partition(":")
        attrgetter(path)(importlib.import_module(module))
        tickets = self.folder / f"point-{len(self._points)}"
        tickets.mkdir(parents=True)
        for number in range(times):
            (tickets / f"ticket-{number}").touch()
        for number in range(passes):
            (tickets / f"pass-{number}").touch()
        self._points.append(
            {"at": place, "moment": moment, "action": action, "tickets": str(tickets), "program": program}
        )

    def fired(self) -> int:
        """Count the ordered faults that have happened so far."""
        return len(list(self.folder.glob("point-*/used-*")))

    @property
    def event_log(self) -> Path:
        """The log of changes to the ledger and outputs, if `notes_events` is set; see `tests/inject/noted.py`."""
        return self.folder / "events.jsonl"

    @property
    def work_log(self) -> Path:
        return self.folder / "work.log"

    @property
    def _device(self) -> Path:
        return self.folder / "device"

    def rows_scored(self) -> int:
        """Count the rows that the stand-in has scored. Rows that were scored twice count twice."""
        if not self.work_log.exists():
            return 0
        return sum(int(line.split()[2]) for line in self.work_log.read_text().splitlines())

    @property
    def environment(self) -> dict[str, str]:
        orders = {
            "clock_offset_seconds": self.clock_offset_seconds,
            "window_rows": self.window_rows,
            "events": str(self.event_log) if self.notes_events else None,
            "scorer": self._scorer,
            "points": self._points,
        }
        return {
            "PYTHONPATH": PYTHONPATH,
            "SHARDSIFT_TEST_FAULTS": json.dumps(orders),
            **({"SHARDSIFT_SCORER": STAND_IN} if self._scorer else {}),
        }
