"""The command `python -m containers`: README's fleet on a real Docker engine, and what may happen to it.

It needs root, some Debian packages and about 25 GB of disk, but no Docker on the machine and no registry of images. It removes
all that it made. If it cannot run, it says why and exits with 0.
"""

import argparse
import shutil
import signal
import sys
import tempfile
from pathlib import Path

from containers.engine import started_engine, why_not
from containers.images import check_versions, make_images
from containers.machine import clone
from containers.report import say
from containers.walk import walk
from support.pages import ROOT


def main() -> int:
    options = _parser().parse_args()
    if reason := why_not():
        say(f"skipped: {reason}")
        return 0
    # An exit unwinds all `with` blocks, so that no process is left behind.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    folder = options.keep or Path(tempfile.mkdtemp(prefix="containers-"))
    machines = Path(tempfile.mkdtemp(prefix="machines-"))
    try:
        with started_engine(folder) as engine:
            source = machines / "source"
            clone(ROOT, source)
            make_images(engine, folder, source)
            check_versions(engine, source)
            walk(engine, source, machines)
    finally:
        shutil.rmtree(machines)
        if not options.keep:
            shutil.rmtree(folder)
    say("\nAll of it held.")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="containers", description=__doc__)
    parser.add_argument(
        "--keep", type=Path, metavar="FOLDER", help="keep images and build cache in this folder, for the next time"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
