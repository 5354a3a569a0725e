"""A process starts whatever the threads of its parent do, with the signals of a fresh one."""

import io
import signal
import sys
import threading
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from shardsift.fleet.process.children import running


@pytest.mark.slow  # 20 s
@pytest.mark.timeout(120)  # it hung
def test_processes_start_while_threads_of_a_library_enter_python(tmp_path: Path) -> None:
    content = io.BytesIO()
    pq.write_table(pa.table({str(column): range(2_000) for column in range(40)}), content)
    is_over = threading.Event()

    def read() -> None:
        while not is_over.is_set():
            pq.read_table(pa.PythonFile(io.BytesIO(content.getvalue()), mode="r"))

    reading = threading.Thread(target=read)
    reading.start()
    try:
        for _ in range(200):
            with running(["true"], log=tmp_path / "log", stop_seconds=10) as child:
                assert child.wait(20) == 0
    finally:
        is_over.set()
        reading.join()


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_process_ignores_no_signal_that_python_does(tmp_path: Path) -> None:
    with running(["grep", "SigIgn", "/proc/self/status"], log=tmp_path / "log", stop_seconds=10) as child:
        child.wait(20)

    ignored = int((tmp_path / "log").read_text().split()[1], base=16)
    assert not any(ignored >> (number - 1) & 1 for number in (signal.SIGPIPE, signal.SIGXFSZ))
