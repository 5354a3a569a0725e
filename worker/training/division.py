"""How the rows of a step are divided among processes, so that a step has as many rows as the spec says. Knows no torch."""

from dataclasses import dataclass

from fleet.counted import counted
from fleet.training.spec import FullTraining


@dataclass(frozen=True, kw_only=True)
class Division:
    """In a step, each of `processes` takes `accumulation_steps` batches of `batch_rows`."""

    processes: int
    batch_rows: int
    accumulation_steps: int

    @property
    def rows(self) -> int:
        """Of a step."""
        return self.processes * self.batch_rows * self.accumulation_steps

    def told(self, devices: int) -> str:
        if self.processes < devices:
            return f"A step of {counted(self.rows, 'row')} cannot be divided among {devices} devices. {self._told}"
        return self._told

    @property
    def _told(self) -> str:
        if self.processes == 1:
            return "Training on one of them"
        each = f"{self.accumulation_steps} × {self.batch_rows}" if self.accumulation_steps > 1 else f"{self.batch_rows}"
        return f"Training in {self.processes} processes, each with {each} of the {counted(self.rows, 'row')} of a step"


def divided(full: FullTraining, devices: int) -> Division:
    """Among as many of the devices as divide the step, in batches that are no larger than those of the spec."""
    rows = full.batch_rows * full.accumulation_steps
    processes = _largest_divisor(rows, at_most=devices)
    batch_rows = _largest_divisor(rows // processes, at_most=full.batch_rows)
    return Division(processes=processes, batch_rows=batch_rows, accumulation_steps=rows // processes // batch_rows)


def multiplied(full: FullTraining, processes: int) -> Division:
    """With the spec's batches in each process, as `torchrun` has it: more processes are larger steps."""
    return Division(processes=processes, batch_rows=full.batch_rows, accumulation_steps=full.accumulation_steps)


def _largest_divisor(number: int, *, at_most: int) -> int:
    return max(divisor for divisor in range(1, at_most + 1) if number % divisor == 0)
