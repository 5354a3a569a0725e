"""Run the Redis of a state folder for as long as any process uses it.

The keeper is a process of its own, so that the users may end in any order. A user is a process that uses the Redis. It
holds a shared lock on `redis.users` until it ends. The keeper holds `redis.lock`.
"""

import fcntl
import os
import stat
import sys
import tempfile
import time
from pathlib import Path
from typing import IO

from shardsift.fleet.process.children import running

_POLL_SECONDS = 0.1
_STOP_SECONDS = 10.0
_LONGEST_FOLDER = 60  # bytes; the path of a socket may have 107, on macOS 103


def keep(state_dir: Path, binary: str) -> None:
    """Run the Redis server until it ends, or until no process uses it. Returns at once if another keeper runs.

    If the server ends early, a process that uses it starts another keeper.
    """
    data_dir = state_dir / "redis"
    with (state_dir / "redis.lock").open("a") as own, (state_dir / "redis.users").open("a") as users:
        if not is_free(own) or is_free(users):
            return
        folder = _socket_folder(state_dir)
        command = _command(binary, folder / "redis.sock", data_dir)
        # The server inherits the lock: if this process is killed, no other keeper starts before that server has ended.
        log, lock = data_dir / "redis.log", own.fileno()
        with running(command, log=log, stop_seconds=_STOP_SECONDS, pass_fds=[lock]) as server:
            while server.poll() is None and not is_free(users):
                time.sleep(_POLL_SECONDS)
        fcntl.flock(users, fcntl.LOCK_SH)  # waits for a user that is ending and still holds the exclusive lock
        if is_free(users):  # a new user waits for the lock until this process has ended
            (folder / "redis.sock").unlink(missing_ok=True)
            folder.rmdir()


def is_free(lock: IO[str]) -> bool:
    """Take the lock if no other process holds it. Returns whether it was free."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def socket_path(state_dir: Path) -> Path | None:
    """Return the path of the socket of the running or last server. None if no server has run yet."""
    try:
        return Path((state_dir / "redis.socket").read_text("utf-8"))
    except FileNotFoundError:
        return None


def _socket_folder(state_dir: Path) -> Path:
    """Return a folder for the socket that only this user can open, because the server has no other access control.

    Reuses the folder of the last server if it exists.
    """
    last = socket_path(state_dir)
    if last and _is_private(last.parent):
        return last.parent
    parent = tempfile.gettempdir()
    short = parent if len(os.fsencode(parent)) <= _LONGEST_FOLDER else "/tmp"
    folder = Path(tempfile.mkdtemp(prefix="shardsift-redis-", dir=short))
    new = state_dir / "redis.socket.new"
    new.write_text(str(folder / "redis.sock"), "utf-8")
    new.rename(state_dir / "redis.socket")
    return folder


def _is_private(folder: Path) -> bool:
    try:
        found = folder.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o077


def _command(binary: str, socket: Path, data_dir: Path) -> list[str]:
    options = {
        "port": "0",
        "unixsocket": str(socket),
        "unixsocketperm": "700",
        "dir": str(data_dir),
        "appendonly": "yes",
        "appendfsync": "everysec",
        "maxmemory-policy": "noeviction",
        "save": "",
        "daemonize": "no",
    }
    return [binary, *(part for option, value in options.items() for part in (f"--{option}", value))]


if __name__ == "__main__":
    keep(Path(sys.argv[1]), sys.argv[2])
