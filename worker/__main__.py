"""`python -m worker`: the command `worker`."""

import sys
from pathlib import Path

if __name__ == "__main__":
    # -m puts the current folder first on the path; a user's worker.py or fleet.py there must not shadow ours.
    if not sys.flags.safe_path and Path(sys.path[0]) != Path(__file__).parents[1]:
        del sys.path[0]

    from worker.cli import main

    main()
