"""Python itself runs this at the start of every process whose PYTHONPATH has this folder: faults are put in by order.

`support.orders.Faults` writes the orders. Nothing of the product knows of them.
"""

import os
import sys

_IS_A_HELPER = any("semaphore_tracker" in argument for argument in sys.orig_argv)  # of billiard's: nothing of ours

if (orders := os.environ.get("SHARDSIFT_TEST_FAULTS")) and not _IS_A_HELPER:
    from injected import install

    install(orders)
