"""A way to run a model of which processes die is left out later, unless something else may have ended them."""

import subprocess
import sys
from pathlib import Path

from shardsift.worker.scoring.gpu_notes import GpuNotes

_DIE = """
import os, signal, sys
from pathlib import Path
from shardsift.worker.scoring.gpu_notes import GpuNotes
with GpuNotes(folder=Path(sys.argv[1]), worker_folder=Path(sys.argv[2])).trying("graphed"):
    os.kill(os.getpid(), signal.SIGKILL)
"""


def notes_of(worker: str, machine: Path) -> GpuNotes:
    folder = machine / worker
    folder.mkdir(parents=True, exist_ok=True)
    return GpuNotes(folder=machine / "gpu", worker_folder=folder)


def die_in_a_trial(notes: GpuNotes) -> None:
    done = subprocess.run([sys.executable, "-c", _DIE, str(notes.folder), str(notes.worker_folder)], check=False)
    assert done.returncode == -9


def test_a_way_in_which_two_processes_of_a_worker_died_in_a_row_is_left_out_by_all_workers(tmp_path: Path) -> None:
    notes = notes_of("w1", tmp_path)

    for _ in range(2):
        assert notes.fault_of("graphed") is None
        die_in_a_trial(notes)

    fault = notes_of("w1", tmp_path).fault_of("graphed")
    assert fault
    assert fault == notes_of("w2", tmp_path).fault_of("graphed")
    assert notes.fault_of("packed") is None
    said, _, file = fault.partition(". To try again, delete ")
    assert said == "2 processes in a row died while they tried it"
    Path(file).unlink()
    assert notes_of("w2", tmp_path).fault_of("graphed") is None


def test_a_way_is_tried_again_after_a_process_survived_it(tmp_path: Path) -> None:
    notes = notes_of("w1", tmp_path)

    die_in_a_trial(notes)
    with notes.trying("graphed"):
        pass
    die_in_a_trial(notes)

    assert notes.fault_of("graphed") is None


def test_workers_that_are_killed_in_a_trial_or_are_still_in_it_lose_no_way(tmp_path: Path) -> None:
    for worker in ("w1", "w2", "w3"):  # each has a folder of its own, also if it is started again
        die_in_a_trial(notes_of(worker, tmp_path))

    with notes_of("w4", tmp_path).trying("graphed"):
        assert notes_of("w5", tmp_path).fault_of("graphed") is None
