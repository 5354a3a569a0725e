"""Find what the processes of a test leave behind on this machine. A zombie is dead: init reaps it."""

import psutil

from support.injected_faults import InjectedFaults


def processes_with(faults: InjectedFaults) -> list[psutil.Process]:
    """All living processes with these orders, even if they have lost their parent."""
    return [process for process in psutil.process_iter() if _has(process, str(faults.folder))]


def _has(process: psutil.Process, folder: str) -> bool:
    try:
        orders = process.environ().get("SHARDSIFT_TEST_FAULTS", "")
        return folder in orders and is_alive(process)
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return False


def is_alive(process: psutil.Process) -> bool:
    return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
