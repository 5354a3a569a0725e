"""A stand-in for nvidia-smi, with the output of the real one."""

from pathlib import Path

_SCRIPT = """#!/bin/sh
case "$1" in
  -L) {listing} ;;
  *) {header} ;;
esac
"""
_HEADER = "| NVIDIA-SMI 570.124.06   Driver Version: 570.124.06   CUDA Version: {cuda}   |"


def install_nvidia_smi(folder: Path, *, gpus: int = 1, slices: int = 0, cuda: str = "12.8") -> None:
    """Install a stand-in that lists `gpus` GPUs. If `slices` is not 0, the first GPU has that many MIG slices."""
    listing = [f"GPU {number}: NVIDIA A100 (UUID: GPU-{number}abc)" for number in range(gpus)]
    listing[1:1] = [f"  MIG 1g.5gb      Device  {number}: (UUID: MIG-{number}abc)" for number in range(slices)]
    install_script(folder, _SCRIPT.format(listing=_echo(listing), header=_echo([_HEADER.format(cuda=cuda)])))


def install_script(folder: Path, script: str) -> None:
    folder.mkdir(exist_ok=True)
    program = folder / "nvidia-smi"
    program.write_text(script)
    program.chmod(0o755)


def _echo(lines: list[str]) -> str:
    return "; ".join(f"echo '{line}'" for line in lines) or ":"
