"""The interface between the work on a shard and the process that holds the shard."""

from typing import Protocol

from worker.shard.vitals import Vitals


class Progress(Protocol):
    """Receives the progress of the work, and says whether to continue."""

    @property
    def vitals(self) -> Vitals:
        """Where the work notes what it has done."""

    def on_batch(self, rows_of_window: int) -> bool:
        """Note the rows of this window that are scored. Returns False if the work must stop after this batch."""

    def on_window(self) -> None:
        """A window is finished. Rows that are reported from now on belong to the next one."""

    def on_progress(self) -> None:
        """Note progress of another kind, such as an upload, so that the process does not seem to hang."""

    def check(self) -> None:
        """Raises LeaseLost or Stopped if the work must stop here."""


class Uninterrupted:
    """The `Progress` of work that no other process waits for."""

    def __init__(self) -> None:
        self.vitals = Vitals()

    def on_batch(self, rows_of_window: int) -> bool:
        return True

    def on_window(self) -> None: ...

    def on_progress(self) -> None: ...

    def check(self) -> None: ...
