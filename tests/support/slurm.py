"""A real Slurm cluster of one node on this machine, with stand-ins for its GPUs: Debian's munged, slurmctld and slurmd."""

import os
import re
import shutil
import socket
import stat
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from fleet.process.children import running
from support.ports import unused_port
from support.waiting import wait_until

GPUS = 8
CPUS = 64
_MEMORY_MIB = 512 * 1024
_PROGRAMS = {"munged": "munge", "slurmctld": "slurmctld", "slurmd": "slurmd", "sbatch": "slurm-client"}


@dataclass(frozen=True, kw_only=True)
class Cluster:
    folder: Path

    @property
    def environment(self) -> dict[str, str]:
        return {"SLURM_CONF": str(self.folder / "slurm.conf")}

    def ask(self, *command: str, environment: Mapping[str, str] | None = None) -> str:
        """What a command of Slurm prints, on stderr too. Fails if it fails."""
        done = subprocess.run(
            command,
            env={"PATH": os.environ["PATH"], **(environment or {}), **self.environment},
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, f"{' '.join(command)}: {done.stdout}"
        return done.stdout

    def restarts(self) -> list[int]:
        """How often each job came back; of an array, each task."""
        lines = self.ask("scontrol", "--oneliner", "show", "job").splitlines()
        return [int(found[1]) for line in lines if (found := re.search(r" Restarts=(\d+) ", line))]


@contextmanager
def slurm_cluster(folder: Path) -> Iterator[Cluster]:
    """The node says that it has 8 GPUs, 64 cores and 512 GiB. Skips the test where Slurm cannot run."""
    if missing := sorted({package for program, package in _PROGRAMS.items() if shutil.which(program) is None}):
        pytest.skip(f"no Slurm here: apt-get install --no-install-recommends {' '.join(missing)}")
    if os.geteuid() != 0:
        pytest.skip("slurmd needs root")
    _write_settings(folder)
    cluster = Cluster(folder=folder)
    node = socket.gethostname().partition(".")[0]
    munged = ["munged", "--foreground", "--force", f"--key-file={folder}/munge.key", f"--socket={folder}/munge.socket"]
    munged += [f"--{name}-file={folder}/munge.{name}" for name in ("pid", "seed", "log")]
    with ExitStack() as stack:
        for command in (munged, ["slurmctld", "-D", "-f", f"{folder}/slurm.conf"], ["slurmd", "-D", "-N", node]):
            log = folder / f"{command[0]}.out"
            environment = {**os.environ, **cluster.environment}
            stack.enter_context(running(command, log=log, stop_seconds=5, environment=environment))
            if command is munged:
                wait_until((folder / "munge.socket").exists, description="munged listens", seconds=20)
        wait_until(lambda: "idle" in cluster.ask("sinfo", "-h", "-o", "%T"), description="the node is up", seconds=60)
        try:
            yield cluster
        finally:
            cluster.ask("scancel", "--quiet", "--signal=KILL", "--full", "--state=RUNNING")
            cluster.ask("scancel", "--quiet", "--user=root")


def _write_settings(folder: Path) -> None:
    node = socket.gethostname().partition(".")[0]
    folder.mkdir()
    for name in ("state", "spool", "devices"):
        (folder / name).mkdir()
    for number in range(GPUS):
        os.mknod(folder / f"devices/gpu{number}", 0o600 | stat.S_IFCHR, os.makedev(1, 3))  # as /dev/null
    (folder / "munge.key").write_bytes(os.urandom(1024))
    (folder / "munge.key").chmod(0o400)
    (folder / "gres.conf").write_text(f"Name=gpu File={folder}/devices/gpu[0-{GPUS - 1}]\n")
    (folder / "slurm.conf").write_text(
        f"""ClusterName=trial
SlurmctldHost={node}(127.0.0.1)
SlurmUser=root
AuthInfo=socket={folder}/munge.socket,cred_expire=10
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldPort={unused_port()}
SlurmdPort={unused_port()}
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
GresTypes=gpu
SlurmdParameters=config_overrides
KillWait=15
NodeName={node} NodeAddr=127.0.0.1 CPUs={CPUS} RealMemory={_MEMORY_MIB} Gres=gpu:{GPUS}
PartitionName=gpu Nodes={node} Default=YES MaxTime=INFINITE State=UP
"""
    )
