"""Inject faults into a process of the product: a kill before or after an effect, or a wrong clock."""

import ctypes
import importlib
import json
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from noted import note_events

Action = Callable[[], None]
_STAND_IN: dict[str, Any] = {}


def install(orders: str) -> None:
    """Inject the faults that `support.injected_faults.InjectedFaults` describes in JSON."""
    wanted = json.loads(orders)
    if wanted["clock_offset_seconds"]:
        _set_clock(wanted["clock_offset_seconds"])
    note = note_events(Path(wanted["events"])) if wanted["events"] is not None else _note_nothing
    if wanted["window_rows"] is not None:
        _cut_windows(wanted["window_rows"])
    if wanted["scorer"] is not None:
        _STAND_IN["options"] = wanted["scorer"]
        _STAND_IN["on_load"] = lambda: note("loaded")
    for point in wanted["points"]:
        _wrap(point["at"], point["moment"], ACTIONS[point["action"]], Path(point["tickets"]), point["program"])


def _note_nothing(what: str, **fields: Any) -> None:
    pass


def _set_clock(offset_seconds: float) -> None:
    """Shift this process's wall clock. Monotonic time stays right."""
    real = time.time
    time.time = lambda: real() + offset_seconds  # type: ignore[assignment]


def _cut_windows(rows: int) -> None:
    """Set the window size of runs that this process enqueues. Users cannot set it, so it is no option."""
    from shardsift.fleet.run.spec import RunSpec

    RunSpec.__init__.__kwdefaults__["window_rows"] = rows


def stand_in_orders() -> tuple[dict[str, Any], Action]:
    """Return the options of the stand-in, and the action for when it is loaded."""
    return _STAND_IN["options"], _STAND_IN["on_load"]


def _wrap(at: str, moment: str, action: Action, tickets: Path, program: str) -> None:
    """Wrap the function `at`, `module:Class.method` or `module:function`, with an action before or after its calls.

    Each action uses up a ticket. All processes share the tickets.
    """

    def is_due() -> bool:
        return Path(sys.argv[0]).name == program and not _take(tickets, "pass") and _take(tickets, "ticket")

    module_name, _, path = at.partition(":")
    holder: Any = importlib.import_module(module_name)
    *outer, name = path.split(".")
    for part in outer:
        holder = getattr(holder, part)
    real = getattr(holder, name)

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        if moment == "before" and is_due():
            action()
        result = real(*args, **kwargs)
        if moment == "after" and is_due():
            action()
        return result

    setattr(holder, name, wrapped)


def _take(tickets: Path, kind: str) -> bool:
    for ticket in sorted(tickets.glob(f"{kind}-*")):
        try:
            ticket.rename(ticket.with_name(ticket.name.replace(kind, "used" if kind == "ticket" else "passed")))
        except FileNotFoundError:  # another process was faster
            continue
        return True
    return False


def _kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _kill_worker() -> None:
    """Kill parent and child, as if the machine had failed."""
    os.kill(os.getppid(), signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


def _terminate_worker() -> None:
    """Send SIGTERM to the parent, from the parent itself or from its child."""
    os.kill(int(os.environ.get("SHARDSIFT_WORKER_PID", os.getpid())), signal.SIGTERM)


def _freeze() -> None:
    """Stop this process until it gets SIGCONT."""
    os.kill(os.getpid(), signal.SIGSTOP)


def _freeze_worker() -> None:
    """Stop parent and child until they get SIGCONT."""
    os.kill(os.getppid(), signal.SIGSTOP)
    os.kill(os.getpid(), signal.SIGSTOP)


def _segfault() -> None:
    ctypes.string_at(0)


def _hang_with_the_interpreter_locked() -> None:
    ctypes.PyDLL(None).sleep(3600)


def _raise_memory_error() -> None:
    raise MemoryError("no memory, by order")


def _raise_permission_error() -> None:
    raise PermissionError(13, "Permission denied", "model.safetensors")


def _raise_device_fault() -> None:
    from shardsift.worker.scoring import DeviceFault

    raise DeviceFault("CUDA error: device-side assert triggered, by order")


def _lose_device() -> None:
    from shardsift.worker.scoring import DeviceLost

    raise DeviceLost("The GPU failed when graphed batches were tried, by order")


def _lose_answer() -> None:
    """Raise a connection error, as if Redis had executed a call but its answer was lost."""
    import redis

    raise redis.ConnectionError("the answer is lost, by order")


def _fail_next_ping() -> None:
    import redis

    real = redis.Redis.ping

    def fail(*_: object, **__: object) -> None:
        redis.Redis.ping = real  # type: ignore[method-assign]
        raise redis.ConnectionError("Redis is away, by order")

    redis.Redis.ping = fail  # type: ignore[assignment,method-assign]


def _raise_runtime_error() -> None:
    raise RuntimeError("an unexpected fault, by order")


def _raise_signed_error() -> None:
    """Raise an error with a signed URL, as clients of the Hub and of buckets do."""
    try:
        raise OSError("403 Forbidden for url: https://b.s3.amazonaws.com/f?X-Amz-Signature=s1gnature-of-an-address")
    except OSError as error:
        raise RuntimeError("PUT https://b.s3.amazonaws.com/f?X-Amz-Signature=s1gnature-of-an-address") from error


ACTIONS: dict[str, Action] = {
    "kill": _kill,
    "kill worker": _kill_worker,
    "terminate worker": _terminate_worker,
    "freeze": _freeze,
    "freeze worker": _freeze_worker,
    "segfault": _segfault,
    "exit": lambda: os._exit(3),
    "sys.exit": lambda: sys.exit(3),
    "hang": lambda: time.sleep(3600),
    "hang locked": _hang_with_the_interpreter_locked,
    "memory error": _raise_memory_error,
    "permission error": _raise_permission_error,
    "device fault": _raise_device_fault,
    "device lost": _lose_device,
    "runtime error": _raise_runtime_error,
    "signed error": _raise_signed_error,
    "fail next ping": _fail_next_ping,
    "lose answer": _lose_answer,
}
