"""Run the test Hub by hand. From `tests/`: `python -m hubserver --xet --load dataset:org/name=FOLDER`.

Prints the endpoint and a write token as one line of JSON, then serves until SIGTERM or Ctrl-C.
"""

import argparse
import json
import re
import signal
import threading
from pathlib import Path

from hubserver.server import HubServer


def main() -> None:
    options = parser().parse_args()
    stopped = threading.Event()  # not sigwait: a thread of a library may receive the signal, whose mask is its own
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda _number, _frame: stopped.set())
    with HubServer(xet=options.xet, redirect_downloads=options.redirect, port=options.port) as hub:
        for repo_type, repo_id, folder in options.load:
            hub.create_repo(repo_id, repo_type=repo_type)
            hub.add_folder(repo_id, folder, repo_type=repo_type)
        print(json.dumps({"endpoint": hub.endpoint, "token": hub.token("main")}), flush=True)  # noqa: T201
        stopped.wait()


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="hubserver", description=__doc__)
    parser.add_argument("--port", type=int, default=0, help="the port to listen on; 0 selects a free port")
    parser.add_argument("--xet", action="store_true", help="serve xet; without it, clients need HF_HUB_DISABLE_XET=1")
    parser.add_argument(
        "--redirect", action="store_true", help="redirect downloads of large files to another origin, like a CDN"
    )
    parser.add_argument("--load", action="append", default=[], type=folder_to_load, metavar="dataset:org/name=FOLDER")
    return parser


def folder_to_load(text: str) -> tuple[str, str, Path]:
    match = re.fullmatch(r"(dataset|model):([^/=]+/[^/=]+)=(.+)", text)
    if not match or not Path(match[3]).is_dir():
        raise argparse.ArgumentTypeError(f"{text!r} is not TYPE:ORG/NAME=FOLDER with an existing folder")
    return match[1], match[2], Path(match[3])


if __name__ == "__main__":
    main()
