"""Keep the folder of a training's checkpoints: `training.json`, which says whose they are, and what the Trainer writes."""

import dataclasses
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fleet.errors import UsageError
from worker.training.labelled import Split
from worker.training.options import NOT_OF_THE_WEIGHTS, TrainOptions

_DESCRIPTION = "training.json"
# Options that say where things are. The digests of the rows are compared instead.
_ADDRESSES = ("output", "data", "label_with", "validation")


def described(options: TrainOptions, split: Split, *, processes: int) -> dict[str, Any]:
    """Describe what decides the weights: two trainings that are described alike give the same model, wherever their files are."""
    chosen = dataclasses.asdict(options)
    for name in (*NOT_OF_THE_WEIGHTS, *_ADDRESSES):
        del chosen[name]
    return {**chosen, "data": split.data_digest, "validation": split.validation_digest, "processes": processes}


def claim_folder(folder: Path, wanted: dict[str, Any]) -> None:
    """Make the folder for the training that is described so. Raises UsageError if it is of another one."""
    file = folder / _DESCRIPTION
    if file.exists():
        found = json.loads(file.read_text())
        changed = [name.replace("_", " ") for name in wanted if found.get(name) != wanted[name]]
        if changed:
            raise UsageError(
                f"The checkpoints in {folder} are of another training, with another {', '.join(changed)}. "
                "Name another folder with --checkpoints, or delete this one to start again."
            )
        return
    if folder.exists() and any(folder.iterdir()):
        raise UsageError(f"{folder} holds other files. Name another folder with --checkpoints.")
    folder.mkdir(parents=True, exist_ok=True)
    partial = folder.with_name(f".{folder.name}.partial")
    partial.write_text(json.dumps(wanted, indent=1))
    partial.replace(file)


def checkpoint_to_resume(folder: Path, tell: Callable[[str], None]) -> Path | None:
    """The newest checkpoint. Deletes one that was not written to its end."""
    from transformers.trainer_utils import get_last_checkpoint

    while last := get_last_checkpoint(str(folder)):
        if _is_whole(Path(last)):
            tell(f"Going on after step {step_of(Path(last)):,}, from {last}")
            return Path(last)
        shutil.rmtree(last)
    return None


def step_of(checkpoint: Path) -> int:
    return int(checkpoint.name.partition("-")[2])


def forget(folder: Path) -> None:
    """Delete the checkpoints. Other files in the folder stay."""
    (folder / _DESCRIPTION).unlink(missing_ok=True)
    for checkpoint in folder.glob("checkpoint-*"):
        shutil.rmtree(checkpoint, ignore_errors=True)
    if folder.is_dir() and not any(folder.iterdir()):
        folder.rmdir()


def _is_whole(checkpoint: Path) -> bool:
    """Whether its state can be read, which the Trainer writes last."""
    try:
        json.loads((checkpoint / "trainer_state.json").read_text())
    except (FileNotFoundError, ValueError):
        return False
    return True
