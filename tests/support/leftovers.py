"""Find what the processes of a test leave behind on this machine. A zombie is dead: init reaps it."""

from pathlib import Path

import psutil


def processes_with(folder: Path) -> list[psutil.Process]:
    """List all living processes whose environment names this folder, even if their parent is dead."""
    return [process for process in psutil.process_iter() if _has(process, str(folder))]


def _has(process: psutil.Process, folder: str) -> bool:
    try:
        return any(folder in value for value in process.environ().values()) and is_alive(process)
    except (psutil.Error, OSError):
        return False


def is_alive(process: psutil.Process) -> bool:
    return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
