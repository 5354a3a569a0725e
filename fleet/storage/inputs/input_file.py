"""What the rest of the code knows of an input file."""

from collections.abc import Iterator, Sequence
from typing import Protocol

import pyarrow as pa

from fleet.storage.inputs.bad_rows import BadRows

STEP_ROWS = 1024


class InputFile(Protocol):
    """The rows of a file, in order. Every pass over the file gives the same rows."""

    @property
    def schema(self) -> pa.Schema: ...

    def batches(
        self,
        columns: Sequence[str] | None = None,
        *,
        bad: BadRows | None = None,
        most_rows: int = STEP_ROWS,
        use_threads: bool = True,
    ) -> Iterator[pa.RecordBatch]:
        """All rows, or only some columns of them, in batches of at most `most_rows`. Call within `translated`.

        A row that cannot be read is null in every column, and is added to `bad` before its batch comes. Without `bad`, it
        raises ShardError, which names the row's place.
        """

    def count_rows(self, most: int | None = None) -> int:
        """The number of rows, or `most` if there are more. Files that do not say it are read, as far as necessary."""
