"""The program of a rank that is not rank 0: `python -m worker.scoring.sharded.rank FD PARENT`.

It does what the first message says (`RankWork`): compute a part of a model, or train with a part of the rows. It ends when rank 0
closes the connection or dies. It ignores SIGTERM and SIGINT, which a process group gets together: rank 0 may still need it for a
batch, or for a checkpoint.
"""

import os
import pickle
import signal
import sys
import threading
import traceback
from multiprocessing.connection import Connection
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, NoReturn

from fleet.parent_death import end_with_parent

if TYPE_CHECKING:
    from worker.scoring.sharded.processes import RankWork


def main() -> NoReturn:
    """`PARENT` is the pid of rank 0, or 0 if rank 0 was not started from a main thread; see `RankProcesses`."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    connection, parent = Connection(int(sys.argv[1])), int(sys.argv[2])
    if parent:
        end_with_parent(parent, signal.SIGKILL)
    received: SimpleQueue[Any] = SimpleQueue()
    threading.Thread(target=_receive, args=(connection, received), name="receive", daemon=True).start()
    _serve(connection, received)


def _receive(connection: Connection, received: "SimpleQueue[Any]") -> NoReturn:
    """End the process as soon as rank 0 has gone, even if the main thread waits for rank 0 in a collective."""
    try:
        while True:
            received.put(pickle.loads(connection.recv_bytes()))
    except (EOFError, OSError):
        os._exit(0)
    except BaseException:
        traceback.print_exc()
        os._exit(1)


def _serve(connection: Connection, received: "SimpleQueue[Any]") -> NoReturn:
    from worker.scoring.quiet import quieten_imports

    quieten_imports()
    work: RankWork = received.get()
    work.serve(connection, received)


if __name__ == "__main__":
    main()
