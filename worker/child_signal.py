"""How a worker's parent and child speak to each other. Apart from `child.py`, which imports torch."""

import signal

STOP_SIGNAL = signal.SIGUSR2  # "stop at the next batch"; SIGTERM is Celery's own and would end the child at once
FAILURE_FILE = "SHARDSIFT_WORKER_FAILURE_FILE"  # names the file in which a child says why it cannot serve
EXIT_NO_MODEL = 70  # sysexits.h: EX_SOFTWARE
