"""Find what the processes of a test leave behind on this machine."""

import psutil

from support.injected_faults import InjectedFaults


def processes_with(faults: InjectedFaults) -> list[psutil.Process]:
    """All living processes with these orders, even if they have lost their parent. A zombie is dead: init reaps it."""
    return [process for process in psutil.process_iter() if _has(process, str(faults.folder))]


def _has(process: psutil.Process, folder: str) -> bool:
    try:
        orders = process.environ().get("SHARDSIFT_TEST_FAULTS", "")
        return folder in orders and process.status() != psutil.STATUS_ZOMBIE
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return False
