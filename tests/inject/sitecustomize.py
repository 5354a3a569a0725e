"""Inject faults as ordered. Python runs this file at the start of every process with this folder in its PYTHONPATH.

`support.injected_faults.InjectedFaults` writes the orders. The product does not know of them.
"""

import os
import sys

_IS_A_HELPER = any("semaphore_tracker" in argument for argument in sys.orig_argv)  # a helper process of billiard

if os.environ.get("SHARDSIFT_TEST_PICTURES") == "0":
    sys.modules["matplotlib.backends.backend_agg"] = None  # type: ignore[assignment]
if (orders := os.environ.get("SHARDSIFT_TEST_FAULTS")) and not _IS_A_HELPER:
    from injected import install

    install(orders)
