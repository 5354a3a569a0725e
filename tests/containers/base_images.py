"""Stand-ins for the images that the Dockerfile and the compose file start from, made of Debian packages.

Uses no registry of images. The stand-ins have the real images' users and folders, Python 3.11 with pip, and for Valkey
a BusyBox shell. Packages come from the sources of this machine's apt and pip.
"""

import configparser
import os
import shutil
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

from containers.engine import BRIDGE, Engine

PYTHON = "python:3.11.15-slim-trixie"
VALKEY = "valkey/valkey:8.1.10-alpine"
PROMETHEUS = "prom/prometheus:v3.5.0"
_CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")


def make_python(engine: Engine, folder: Path) -> None:
    """Make an image of Debian 12, which has Python 3.11."""
    _debootstrap("bookworm", folder, "ca-certificates", "python3", "python3-pip")
    next(folder.glob("usr/lib/python3.11/EXTERNALLY-MANAGED")).unlink()
    for name in ("python", "pip"):
        (folder / "usr/local/bin" / name).symlink_to(f"/usr/bin/{name}3")
    if _CERTIFICATES.exists():
        shutil.copy(_CERTIFICATES, folder / "etc/ssl/certs/ca-certificates.crt")
    (folder / "etc/pip.conf").write_text(_pip_settings())
    _import(engine, folder, PYTHON, "ENV PIP_BREAK_SYSTEM_PACKAGES=1")


def make_valkey(engine: Engine, folder: Path) -> None:
    """Make an image of Debian 13's Valkey, with user 999 and group 1000 as in the published image.

    BusyBox is its only shell.
    """
    _debootstrap("trixie", folder, "busybox-static", "valkey-server", "valkey-tools")
    for applet in ("sh", "cat", "chgrp", "chmod", "chown", "cut", "head", "mv", "sha256sum", "stat", "grep"):
        (folder / "usr/bin" / applet).unlink(missing_ok=True)
        (folder / "usr/bin" / applet).symlink_to("busybox")
    (folder / "data").mkdir()
    os.chown(folder / "data", 999, 1000)
    _import(engine, folder, VALKEY, "VOLUME /data", "WORKDIR /data")


def make_prometheus(engine: Engine, folder: Path) -> None:
    """Make an image of Debian 13's Prometheus, for the user `nobody` as in the published image."""
    _debootstrap("trixie", folder, "busybox-static", "prometheus")
    (folder / "usr/bin/wget").symlink_to("busybox")
    (folder / "prometheus").mkdir()
    os.chown(folder / "prometheus", 65534, 65534)
    _import(engine, folder, PROMETHEUS, "VOLUME /prometheus", 'ENTRYPOINT ["/usr/bin/prometheus"]')


def fill_torch_index(folder: Path, root: Path) -> bool:
    """Download torch into a folder that a web server can offer to pip.

    Returns False if pip finds only a build with CUDA here.
    """
    packages = folder / "torch"
    packages.mkdir(parents=True, exist_ok=True)
    if not list(packages.glob("*.whl")):
        constraints = root / "constraints.txt"
        _pip("download", "-qq", "--no-deps", "--dest", str(packages), "--constraint", str(constraints), "torch")
    return bool(list(packages.glob("*+cpu*.whl")))


def _debootstrap(suite: str, folder: Path, *packages: str) -> None:
    with folder.with_suffix(".log").open("w") as log:
        subprocess.run(
            ["debootstrap", "--variant=minbase", f"--include={','.join(packages)}", suite, folder, _debian_mirror()],
            stdout=log,
            stderr=log,
            check=True,
        )


def _import(engine: Engine, folder: Path, name: str, *changes: str) -> None:
    changed = [argument for change in changes for argument in ("--change", change)]
    packed = subprocess.Popen(["tar", "--directory", folder, "--create", "."], stdout=subprocess.PIPE)
    subprocess.run(
        ["docker", "import", *changed, "-", name],
        env=engine.environment,
        stdin=packed.stdout,
        check=True,
        stdout=subprocess.DEVNULL,
    )
    if packed.wait() != 0:
        raise RuntimeError(f"tar could not pack {folder}")


def _debian_mirror() -> str:
    """Return the address from which apt gets Debian, or debootstrap's default if apt has none."""
    command = ["apt-get", "indextargets", "--format", "$(REPO_URI)"]
    command += ["Created-By: Packages", "Origin: Debian", "Component: main"]
    listed = subprocess.run(command, capture_output=True, text=True, check=False).stdout.split()
    return next((address for address in listed if "security" not in address), "http://deb.debian.org/debian")


def _pip_settings() -> str:
    """Return this machine's pip settings, without those that refer to files of this machine."""
    settings = configparser.ConfigParser(interpolation=None)
    settings["global"] = {"cert": str(_CERTIFICATES)} if _CERTIFICATES.exists() else {}
    for line in _pip("config", "list").splitlines():
        name, _, value = line.partition("=")
        option = name.rpartition(".")[2]
        addresses = [word for word in value.strip("'").split() if urlsplit(word).scheme in ("http", "https")]
        if option in ("index-url", "extra-index-url", "proxy", "trusted-host", "timeout") and (
            addresses or "url" not in option
        ):
            settings["global"][option] = " ".join(addresses) or value.strip("'")
    trusted = settings["global"].get("trusted-host", "")
    settings["global"]["trusted-host"] = f"{trusted} {BRIDGE}".strip()  # of the torch index
    lines = ["[global]", *(f"{name} = {value}" for name, value in settings["global"].items())]
    return "\n".join(lines) + "\n"


def _pip(*arguments: str) -> str:
    return subprocess.run(
        [sys.executable, "-m", "pip", *arguments], stdout=subprocess.PIPE, text=True, check=True
    ).stdout
