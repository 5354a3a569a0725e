"""DuckDB for the filter: one query on one Arrow table, with no access to anything else, and limits on time and memory.

DuckDB ends a query between two vectors of rows only, and its memory limit does not count strings. A query that does not
fit in the machine's memory therefore ends the process, which the ledger counts as a crash.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import duckdb
import pyarrow as pa

TABLE = "rows"
_SECONDS = 10  # and one more per MiB of the table. Heavy conditions on 8,192 texts of 5 kB took 2.4 s
_MEMORY_MIB = 1536
_CLOSED: dict[str, str | bool | int | float | list[str]] = {
    "enable_external_access": "false",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "python_enable_replacements": "false",
    "threads": "1",
    "temp_directory": "",  # spill nothing to disk
}
# The time zone must not depend on the machine. A progress bar would go to stdout. The lock keeps a condition from
# changing settings.
_SETTLED = "SET TimeZone = 'UTC'; SET enable_progress_bar = false; SET lock_configuration = true"


class Sql:
    """A database with one table. Not thread-safe; cheap to create."""

    def __init__(self, *, seconds: int = _SECONDS, memory_mib: int = _MEMORY_MIB) -> None:
        self.connection = duckdb.connect(":memory:", config=_CLOSED | {"memory_limit": f"{memory_mib}MiB"})
        self.connection.execute(_SETTLED)
        self._seconds, self._memory_mib = seconds, memory_mib

    def run(self, query: str, table: pa.Table) -> pa.Table:
        """Run a query on the table, which the query calls `rows`. Raises duckdb.Error, also if it exceeds a limit."""
        seconds = self._seconds + (table.nbytes >> 20)
        self.connection.register(TABLE, table)
        try:
            with self._interrupted_after(seconds):
                return self.connection.sql(query).to_arrow_table()
        except duckdb.InterruptException as error:
            why = f"it took longer than {seconds} s for {_rows(table)}; make it simpler"
            raise duckdb.InterruptException(why) from error
        except duckdb.OutOfMemoryException as error:
            why = f"it needs more than {self._memory_mib:,} MiB of memory for {_rows(table)}; make it simpler"
            raise duckdb.OutOfMemoryException(why) from error
        finally:
            self.connection.unregister(TABLE)

    @contextmanager
    def _interrupted_after(self, seconds: int) -> Iterator[None]:
        """Interrupt the block's query after this time, of which a suspension of the machine counts for one second."""
        done = threading.Event()

        def watch() -> None:
            waited = 0
            while not done.wait(1.0):
                waited += 1
                if waited >= seconds:
                    self.connection.interrupt()  # again each second: DuckDB forgets it between planning and execution

        thread = threading.Thread(target=watch, name="limit of the filter", daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()  # a late interrupt would end the next query


def _rows(table: pa.Table) -> str:
    return "one row" if len(table) == 1 else f"{len(table):,} rows"
