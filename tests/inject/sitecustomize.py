"""Python itself runs this at the start of every process whose PYTHONPATH has this folder: faults are put in by order.

`support.faults.Faults` writes the orders. Nothing of the product knows of them.
"""

import os

if orders := os.environ.get("SHARDSIFT_TEST_FAULTS"):
    from injected import install

    install(orders)
