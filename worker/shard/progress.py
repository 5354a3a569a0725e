"""What the work on a shard asks of the process that holds the shard."""

from typing import Protocol


class Progress(Protocol):
    """Told how far the work is. Answers whether it may go on."""

    def on_batch(self, rows_of_window: int) -> bool:
        """So many rows of this window are scored. False if the work is to end after this batch."""

    def on_window(self) -> None:
        """A window is written; the rows of the next are counted from here."""

    def on_progress(self) -> None:
        """Something advanced, such as an upload: the process does not hang."""

    def check(self) -> None:
        """Raises LeaseLost or Stopped if the work is to end here."""
