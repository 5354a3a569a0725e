"""Run queries in a separate process, with limits on CPU time and memory that hold for any query.

DuckDB can be interrupted only between two vectors of rows, and its memory limit does not count strings, so a call of
`format('{:>1000000000}', text)` cannot be stopped. The kernel enforces the limits instead: a timer of CPU time, which
does not run while the machine is busy or suspended, and on Linux a limit on the address space.
"""

import os
import resource
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, NoReturn

import duckdb
import pyarrow as pa

from fleet.errors import TransientError
from fleet.sql import Sql

_QUERY, _CPU_SECONDS, _MEMORY_BYTES, _ERROR, _EXCEEDED = (
    b"query",
    b"cpu_seconds",
    b"memory_bytes",
    b"error",
    b"exceeded",
)
_STATM = Path("/proc/self/statm")
_ORPHAN_LOOK_SECONDS = 1.0


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """What a query may use beyond the process itself. Heavy conditions on 8,192 texts of 5 kB took 2.4 s."""

    cpu_seconds: float = 10.0
    cpu_seconds_per_mib: float = 1.0
    memory_bytes: int = 512 << 20
    memory_per_byte: int = 16

    def cpu_seconds_for(self, table: pa.Table) -> float:
        return self.cpu_seconds + self.cpu_seconds_per_mib * int(table.nbytes) / (1 << 20)

    def memory_bytes_for(self, table: pa.Table) -> int:
        return self.memory_bytes + self.memory_per_byte * int(table.nbytes)


class SqlProcess:
    """Runs queries in another process. It starts with the first query and ends with `close` or with this object."""

    def __init__(self, bounds: Bounds | None = None) -> None:
        self._bounds = bounds or Bounds()
        self._process: subprocess.Popen[bytes] | None = None

    def run(self, query: str, table: pa.Table) -> pa.Table:
        """Like `Sql.run`. Exceeding the limits raises duckdb.Error too.

        Raises TransientError if something other than the query ended the process.
        """
        try:
            return self._answer(self._process or self._started(), query, table)
        except Exception:
            self.close()  # now: the error's traceback may keep this object alive for long
            raise

    def close(self) -> None:
        if self._process:
            _end(self._process)
            self._process = None

    def _answer(self, process: "subprocess.Popen[bytes]", query: str, table: pa.Table) -> pa.Table:
        assert process.stdin
        assert process.stdout
        try:
            _send(process.stdin, table, self._request(query, table))
            answer, metadata = _receive(process.stdout)
        except (OSError, pa.ArrowException):
            raise self._why_it_ended(process.wait(), table) from None
        if _EXCEEDED in metadata:
            raise self._too_much_memory(table)
        if _ERROR in metadata:
            raise duckdb.Error(metadata[_ERROR].decode())
        return answer

    def _request(self, query: str, table: pa.Table) -> dict[bytes, bytes]:
        return {
            _QUERY: query.encode(),
            _CPU_SECONDS: str(self._bounds.cpu_seconds_for(table)).encode(),
            _MEMORY_BYTES: str(self._bounds.memory_bytes_for(table)).encode(),
        }

    def _started(self) -> "subprocess.Popen[bytes]":
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "fleet.sql_process"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # a signal to the worker's process group must not end this process before the shard stops
            env={**os.environ, "ARROW_DEFAULT_MEMORY_POOL": "system"},  # other pools reserve gigabytes of address space
        )
        weakref.finalize(self, _end, process)
        self._process = process
        return process

    def _why_it_ended(self, status: int, table: pa.Table) -> Exception:
        if status == -signal.SIGPROF:
            return duckdb.InterruptException(
                f"it took longer than {self._bounds.cpu_seconds_for(table):.0f} s for {_rows(table)}; make it simpler"
            )
        if status in (-signal.SIGKILL, -signal.SIGTERM, -signal.SIGINT):
            return TransientError(f"The process that ran the filter was ended by signal {-status}.")
        return self._too_much_memory(table)

    def _too_much_memory(self, table: pa.Table) -> Exception:
        mib = self._bounds.memory_bytes_for(table) >> 20
        return duckdb.OutOfMemoryException(
            f"it needs more than {mib:,} MiB of memory for {_rows(table)}; make it simpler"
        )


def _rows(table: pa.Table) -> str:
    return "one row" if len(table) == 1 else f"{len(table):,} rows"


def _end(process: "subprocess.Popen[bytes]") -> None:
    process.kill()
    for pipe in (process.stdin, process.stdout):
        if pipe:
            with suppress(OSError):  # flushing the rest fails
                pipe.close()
    process.wait()


# --- the pipe: a table, and what it means ------------------------------------------------------------------------------


def _send(pipe: IO[bytes], table: pa.Table, metadata: dict[bytes, bytes]) -> None:
    named = table.replace_schema_metadata(metadata)
    with pa.ipc.new_stream(pipe, named.schema) as stream:
        stream.write_table(named)
    pipe.flush()


def _receive(pipe: IO[bytes]) -> tuple[pa.Table, dict[bytes, bytes]]:
    table = pa.ipc.open_stream(pipe).read_all()
    return table.replace_schema_metadata(), dict(table.schema.metadata or {})


# --- the process ----------------------------------------------------------------------------------------------------


def main() -> NoReturn:
    """Answer queries from stdin on stdout until the parent is gone."""
    signal.signal(signal.SIGPROF, signal.SIG_DFL)  # ends the process, even inside a query
    threading.Thread(target=_leave_with_parent, args=(os.getppid(),), daemon=True).start()
    sql = Sql()
    while True:
        try:
            table, metadata = _receive(sys.stdin.buffer)
        except (OSError, pa.ArrowException):
            os._exit(0)
        try:
            with _bounded(float(metadata[_CPU_SECONDS]), int(metadata[_MEMORY_BYTES])):
                answer, told = sql.run(metadata[_QUERY].decode(), table), {}
        except (MemoryError, duckdb.OutOfMemoryException, pa.ArrowMemoryError):
            answer, told = pa.table({}), {_EXCEEDED: b""}
        except duckdb.Error as error:
            answer, told = pa.table({}), {_ERROR: str(error).encode()}
        _send(sys.stdout.buffer, answer, told)


def _leave_with_parent(parent_pid: int) -> None:
    while os.getppid() == parent_pid:
        time.sleep(_ORPHAN_LOOK_SECONDS)
    os._exit(0)


@contextmanager
def _bounded(cpu_seconds: float, memory_bytes: int) -> Iterator[None]:
    """Set the kernel's limits on this process during the block."""
    if _STATM.exists():  # macOS has no such limit
        size = int(_STATM.read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (size + memory_bytes, resource.RLIM_INFINITY))
    signal.setitimer(signal.ITIMER_PROF, cpu_seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        if _STATM.exists():
            resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


if __name__ == "__main__":
    main()
