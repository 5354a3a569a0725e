"""The checkpoints of a training: a folder with `training.json`, which says whose they are, and the Trainer's checkpoints.

A checkpoint is whole if its `trainer_state.json` is, since the Trainer writes that file last.
"""

import dataclasses
import hashlib
import json
import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fsspec

from fleet.errors import UsageError
from fleet.storage.errors import translated
from fleet.training import TrainSpec

STATE = "trainer_state.json"  # the Trainer's name for it
_SPEC = "training.json"
# Of the spec: where things are and what is measured. The digests of the files are compared instead of their names.
_MAY_CHANGE = {"output_uri", "data_uri", "validation_uri", "threshold"}


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """A whole checkpoint. `best` is the one with the lowest loss on the held-out rows until then."""

    folder: Path
    step: int
    planned_steps: int
    best: Path | None
    checks_without_progress: int

    def is_last(self, patience: int | None) -> bool:
        """Whether training had ended at it, in one way or the other."""
        return self.step >= self.planned_steps or (patience is not None and self.checks_without_progress >= patience)


def default_folder(output: Path) -> Path:
    return output.with_name(f"{output.name}.checkpoints")


def claim_folder(folder: Path, spec: TrainSpec, *, processes: int) -> None:
    """Make the folder for this training, or check that it is of the same one. Raises UsageError if it is not."""
    wanted = _description(spec, processes)
    file = folder / _SPEC
    if file.exists():
        _check_equal(json.loads(file.read_text()), wanted, folder)
        return
    if folder.exists() and any(folder.iterdir()):
        raise UsageError(f"{folder} holds other files. Name another folder with --checkpoints.")
    folder.mkdir(parents=True, exist_ok=True)
    partial = folder.with_name(f".{folder.name}.partial")
    partial.write_text(json.dumps(wanted, indent=1))
    partial.replace(file)


def forget(folder: Path) -> None:
    """Delete the checkpoints. Other files in the folder stay."""
    (folder / _SPEC).unlink(missing_ok=True)
    for checkpoint in _checkpoints(folder):
        shutil.rmtree(checkpoint, ignore_errors=True)
    if folder.is_dir() and not any(folder.iterdir()):
        folder.rmdir()


def last_checkpoint(folder: Path) -> Checkpoint | None:
    """The newest whole checkpoint. Deletes one that was not written to its end."""
    found = None
    for checkpoint in sorted(_checkpoints(folder), key=_step):
        try:
            state = json.loads((checkpoint / STATE).read_text())
        except (OSError, ValueError):
            shutil.rmtree(checkpoint)
            continue
        found = _moved(checkpoint, state)
    return found


def _moved(checkpoint: Path, state: dict[str, Any]) -> Checkpoint:
    """The Trainer notes the full path of the best checkpoint, and the folder may have moved, or be mounted elsewhere."""
    noted = state.get("best_model_checkpoint")
    best = checkpoint.parent / Path(noted).name if noted else None
    if best and str(best) != noted:
        partial = checkpoint / f".{STATE}.partial"
        partial.write_text(json.dumps({**state, "best_model_checkpoint": str(best)}))
        partial.replace(checkpoint / STATE)
    early = state.get("stateful_callbacks", {}).get("EarlyStoppingCallback", {}).get("attributes", {})
    return Checkpoint(
        folder=checkpoint,
        step=state["global_step"],
        planned_steps=state["max_steps"],
        best=best,
        checks_without_progress=early.get("early_stopping_patience_counter", 0),
    )


def _checkpoints(folder: Path) -> list[Path]:
    return [path for path in folder.glob("checkpoint-*") if re.fullmatch(r"checkpoint-\d+", path.name)]


def _step(checkpoint: Path) -> int:
    return int(checkpoint.name.removeprefix("checkpoint-"))


def _description(spec: TrainSpec, processes: int) -> dict[str, Any]:
    fields = dataclasses.asdict(spec)
    options = {name: value for name, value in fields.items() if name not in {*_MAY_CHANGE, "full"}}
    return {
        **options,
        **fields["full"],
        "data": _digest(spec.data_uri),
        "validation": _digest(spec.validation_uri) if spec.validation_uri else None,
        "processes": processes,
    }


def _digest(uri: str) -> str:
    with translated(f"Reading {uri}"), fsspec.open(uri, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _check_equal(found: dict[str, Any], wanted: dict[str, Any], folder: Path) -> None:
    changed = [name for name in wanted if found.get(name) != wanted[name]]
    if changed:
        told = ", ".join(f"{name.replace('_', ' ')} was {found.get(name)}, is {wanted[name]}" for name in changed)
        raise UsageError(
            f"The checkpoints in {folder} are of another training: {told}. Name another folder with --checkpoints, or add "
            "--no-resume to delete them and start again."
        )
