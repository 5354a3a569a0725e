"""The program of a rank that is not rank 0: `python -m worker.scoring.sharded.rank FD PARENT`.

It loads its part of the model, then computes each batch that rank 0 sends, until rank 0 closes the connection or dies. It has
no other task, so it ignores SIGTERM and SIGINT, which a process group gets together: rank 0 may still need it for a batch.
"""

import os
import pickle
import signal
import sys
import threading
import traceback
from multiprocessing.connection import Connection
from queue import SimpleQueue
from typing import Any, NoReturn

from fleet.parent_death import end_with_parent


def main() -> NoReturn:
    """`PARENT` is the pid of rank 0, or 0 if rank 0 was not started from a main thread; see `Ranks`."""
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
    from worker.scoring.quiet import quiet_transformers, quieten_imports

    quieten_imports()
    from worker.scoring.sharded.tensor_parallel import join_and_load

    with quiet_transformers():
        part = join_and_load(received.get())
    connection.send(part.weight_bytes)
    while True:
        try:
            part.run(received.get())
        except ValueError as error:  # the same text fails in every rank, before or after they have met
            connection.send(str(error))
        else:
            connection.send(None)


if __name__ == "__main__":
    main()
