"""What a worker needs to divide its model over several GPUs. Looked at before a worker starts, and by `worker doctor`."""

from importlib.util import find_spec

from fleet.counted import counted
from fleet.errors import UsageError


def check_accelerate(gpus_per_worker: int) -> None:
    """Raises UsageError if accelerate is needed and not installed."""
    if gpus_per_worker > 1 and find_spec("accelerate") is None:
        raise UsageError(
            f"--gpus-per-worker {gpus_per_worker} needs accelerate, which is not installed. "
            "Install it with: pip install 'shardsift[sharded]'"
        )


def check_groups(gpus: int, gpus_per_worker: int, *, device: str) -> None:
    """Raises UsageError if so many GPUs cannot be dealt out in groups. On a CPU, a group is of processes."""
    if gpus_per_worker == 1 or device == "cpu":
        return
    if device not in ("auto", "cuda"):
        raise UsageError(
            f"--gpus-per-worker {gpus_per_worker} and --device {device} contradict each other. Leave one out."
        )
    if not gpus:
        raise UsageError(
            f"--gpus-per-worker {gpus_per_worker}: there is no GPU here. With --device cpu, the model is divided among "
            "processes on the CPU, which is only good for trying it."
        )
    if rest := gpus % gpus_per_worker:
        whole = gpus - rest
        choose = f"Leave {rest} out with --gpus {whole}" if whole else "Use fewer per worker"
        raise UsageError(
            f"--gpus-per-worker {gpus_per_worker}: {counted(gpus, 'GPU')} cannot be dealt out in groups of {gpus_per_worker}. "
            f"{choose}, or choose another number."
        )
