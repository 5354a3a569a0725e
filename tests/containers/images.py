"""Build the project's images with the Dockerfile as it is, and look at what is in them."""

import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from containers import base_images
from containers.engine import BRIDGE, Engine
from containers.report import say

BUILT = ("light", "cpu", "gpu")  # gpu downloads gigabytes of CUDA
_PORT = "8000"
_OF_AN_OLDER_PYTHON = {"async-timeout"}  # redis needs it before 3.11.3, which Debian's Python is


_STAND_INS = {
    base_images.PYTHON: base_images.make_python,
    base_images.VALKEY: base_images.make_valkey,
    base_images.PROMETHEUS: base_images.make_prometheus,
}


def make_images(engine: Engine, folder: Path, source: Path) -> None:
    """Build the images. Stand-ins that the engine already has are not made again."""
    for name, make in _STAND_INS.items():
        if not engine.has_image(name):
            say(f"==> a stand-in for {name}")
            make(engine, folder / "base")
            shutil.rmtree(folder / "base")
    for target in BUILT:
        say(f"==> build the image {target}")
        with _torch_index(engine, folder / "index", source) as arguments:
            _build(engine, source, target, *arguments)
    say(engine.docker("image", "ls"))


def check_versions(engine: Engine, source: Path) -> None:
    """Check that constraints.txt pins all packages of the images."""
    pinned = {line.lower() for line in (source / "constraints.txt").read_text().splitlines()}
    for target in BUILT:
        installed = engine.docker("run", "--rm", f"shardsift:{target}", "pip", "freeze").lower().splitlines()
        allowed = pinned | {line for line in installed if line.partition("==")[0] in _OF_AN_OLDER_PYTHON}
        others = [
            line for line in installed if not line.startswith("shardsift") and line.partition("+")[0] not in allowed
        ]
        assert not others, f"shardsift:{target} has packages that constraints.txt does not pin: {others}"


@contextmanager
def _torch_index(engine: Engine, folder: Path, source: Path) -> Iterator[list[str]]:
    """Serve torch from this machine during the block, if its pip finds a build for the CPU.

    Yields arguments for the image build.
    """
    if not base_images.fill_torch_index(folder, source):
        yield []
        return
    command = [sys.executable, "-m", "http.server", _PORT, "--bind", BRIDGE, "--directory", str(folder)]
    server = subprocess.Popen(engine.in_network(*command), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield ["--build-arg", f"TORCH_CPU_INDEX_URL=http://{BRIDGE}:{_PORT}/"]
    finally:
        server.kill()
        server.wait(10)


def _build(engine: Engine, source: Path, target: str, *arguments: str) -> None:
    command = ["docker", "build", "--progress", "plain", "--file", "ops/images/Dockerfile", "--target", target]
    log = engine.folder / f"build-{target}.log"
    with log.open("w") as output:
        built = subprocess.run(
            [*command, "--tag", f"shardsift:{target}", *arguments, "."],
            cwd=source,
            env=engine.environment,
            stdout=output,
            stderr=output,
            check=False,
        )
    tail = "\n".join(log.read_text().splitlines()[-20:])
    assert built.returncode == 0, f"The image {target} does not build:\n{tail}"
