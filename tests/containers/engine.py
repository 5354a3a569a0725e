"""A Docker engine with namespaces of its own for processes, network and mounts, so that nothing of it is left behind.

It needs no other engine on the machine, and touches none. The network has addresses of its own, and reaches the outside as an
ordinary program does.
"""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

PROGRAMS = {
    "dockerd": "docker.io",
    "docker": "docker.io",
    "iptables": "iptables",
    "slirp4netns": "slirp4netns",
    "debootstrap": "debootstrap",
    "curl": "curl",
    "git": "git",
    "ps": "procps",
    "nsenter": "util-linux",
    "setpriv": "util-linux",
    "unshare": "util-linux",
}
BRIDGE = "172.17.0.1"  # this side's address in the containers' network
_DNS = "10.0.2.3"  # of slirp4netns
_CONTROL_GROUP = f"/containers-{os.getpid()}"
_SETTINGS = Path("/etc/docker")
_ENDS_WITH_US = ("setpriv", "--pdeathsig", "KILL")
_START_SECONDS = 60.0


def why_not() -> str | None:
    if sys.platform != "linux":
        return "it needs Linux"
    if os.geteuid() != 0:
        return "it needs root"
    if missing := sorted({package for program, package in PROGRAMS.items() if shutil.which(program) is None}):
        return f"a program is missing: apt-get install --no-install-recommends {' '.join(missing)}"
    if _docker_client() is None:
        return "no `docker` on the PATH has the version of `dockerd`"
    if subprocess.run(["unshare", "--net", "--mount", "--pid", "--fork", "true"], check=False).returncode != 0:
        return "the kernel does not allow new namespaces"
    return None


class Engine:
    def __init__(self, folder: Path, holder: int) -> None:
        self.folder = folder
        self._holder = holder
        client = _docker_client()
        assert client
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("DOCKER_", "COMPOSE_"))},
            "DOCKER_HOST": f"unix://{folder}/engine.sock",
            "DOCKER_CONFIG": str(folder / "client"),
            "DOCKER_BUILDKIT": "1",
            "PATH": f"{client.parent}:{os.environ['PATH']}",
        }

    def docker(self, *arguments: str | Path, seconds: float = 60.0) -> str:
        """Run a `docker` command. Returns its stdout. Raises CalledProcessError if it fails."""
        return subprocess.run(
            ["docker", *arguments], env=self.environment, stdout=subprocess.PIPE, text=True, timeout=seconds, check=True
        ).stdout

    def in_network(self, *command: str) -> list[str]:
        """Return a command line that runs the command in the network namespace of the engine and its published ports."""
        return ["nsenter", "--target", str(self._holder), "--net", *command]

    def in_processes(self, *command: str) -> list[str]:
        """Return a command line that runs the command where it sees all processes of the containers."""
        return ["nsenter", "--target", str(self._holder), "--mount", "--pid", *command]

    def clear(self) -> None:
        """Remove all containers and volumes, including those of an earlier run that was killed."""
        for kind, options in (("container", ["--all"]), ("volume", [])):
            if found := self.docker(kind, "ls", "--quiet", *options).split():
                self.docker(kind, "rm", "--force", *found)

    def has_image(self, name: str) -> bool:
        return bool(self.docker("image", "ls", "--quiet", name).strip())


@contextmanager
def started_engine(folder: Path) -> Iterator[Engine]:
    """Start an engine that keeps its data in the folder. All its processes end with the block, and with this process."""
    (folder / "client/cli-plugins").mkdir(parents=True, exist_ok=True)
    plugin = folder / "client/cli-plugins/docker-compose"
    plugin.unlink(missing_ok=True)
    plugin.symlink_to(Path(sys.executable).parent / "docker-compose")
    own_namespaces = ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
    holder = subprocess.Popen([*_ENDS_WITH_US, *own_namespaces, "sleep", "infinity"])
    network, had_settings = None, _SETTINGS.exists()
    try:
        first = _child_of(holder.pid)
        with (folder / "network.log").open("w") as log:
            network = subprocess.Popen(
                [*_ENDS_WITH_US, "slirp4netns", "--configure", "--mtu=65520", str(first), "tap0"],
                stdout=log,
                stderr=log,
            )
        engine = Engine(folder, first)
        _run_daemon(engine, first)
        yield engine
    finally:
        holder.send_signal(signal.SIGKILL)  # ends the first process of the namespace, and with it all others
        holder.wait(30)
        if network:
            network.terminate()
            network.wait(30)
        _remove_control_groups()
        if not had_settings:
            _SETTINGS.rmdir()


def _run_daemon(engine: Engine, first: int) -> None:
    folder = engine.folder
    shutil.rmtree(folder / "exec", ignore_errors=True)  # of an engine that was killed
    for name in ("engine.sock", "engine.pid"):
        (folder / name).unlink(missing_ok=True)
    options = (
        f"--storage-driver=overlay2 --data-root={folder}/root --exec-root={folder}/exec --host=unix://{folder}/engine.sock "
        f"--pidfile={folder}/engine.pid --dns={_DNS} --bip={BRIDGE}/16 --cgroup-parent={_CONTROL_GROUP}"
    )
    # The engine writes to two folders of the machine, so empty file systems are mounted over them.
    hide = f"mkdir -p {_SETTINGS} && mount -t tmpfs tmpfs {_SETTINGS} && mount -t tmpfs tmpfs /run"
    prepare = f"{hide} && ip link set lo up && sysctl -qw net.ipv4.ip_forward=1"
    with (folder / "engine.log").open("w") as log:
        subprocess.Popen(
            [*f"nsenter --target {first} --net --mount --pid bash -c".split(), f"{prepare} && exec dockerd {options}"],
            stdout=log,
            stderr=log,
        )
    deadline = time.monotonic() + _START_SECONDS
    while subprocess.run(["docker", "info"], env=engine.environment, capture_output=True, check=False).returncode != 0:
        if time.monotonic() > deadline:
            raise RuntimeError(f"The engine does not start; the end of its log:\n{_tail(folder / 'engine.log')}")
        time.sleep(0.2)


def _docker_client() -> Path | None:
    """Find the `docker` with the version of `dockerd`. Another version may be unable to build."""
    daemon = shutil.which("dockerd")
    if daemon is None:
        return None
    for folder in os.get_exec_path():
        client = Path(folder) / "docker"
        if client.is_file() and _version(client) == _version(Path(daemon)):
            return client
    return None


def _version(program: Path) -> str:
    return subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout.split()[2]


def _child_of(pid: int) -> int:
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        if children := psutil.Process(pid).children():
            return children[0].pid
        time.sleep(0.05)
    raise RuntimeError("`unshare` did not start a process")


def _remove_control_groups() -> None:
    """Remove the control groups of the containers. The kernel allows this once their last process is gone."""
    deadline = time.monotonic() + 10
    while groups := list(Path("/sys/fs/cgroup").glob(f"**{_CONTROL_GROUP}")):
        for folder in (folder for group in groups for folder in sorted(group.glob("**/"), reverse=True)):
            with suppress(OSError):
                folder.rmdir()
        if time.monotonic() > deadline:
            return
        time.sleep(0.2)


def _tail(log: Path) -> str:
    return "\n".join(log.read_text().splitlines()[-10:])
