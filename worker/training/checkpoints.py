"""The checkpoints of a training: a folder with `training.json`, which says whose they are, and the Trainer's checkpoints.

A checkpoint is whole if its `trainer_state.json` is, since the Trainer writes that file last, and its tensors have their length.
"""

import dataclasses
import hashlib
import json
import re
import shutil
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safetensors import SafetensorError, safe_open

from fleet.errors import UsageError
from fleet.run.sequence_classifier import revision_of_folder
from worker.training.place import TrainPlace, is_first_process
from worker.training.rows import Split
from worker.training.spec import TrainSpec

if TYPE_CHECKING:
    from worker.training.base_model import BaseModel


# What identifies a training: two that are described alike give the same model, wherever their files are.

Description = dict[str, Any]
# Of the spec: where things are. Digests are compared instead of names.
_PLACES = {"output_uri", "data_uri", "label_with", "validation_uri"}


def described(spec: TrainSpec, split: Split) -> Description:
    """The options and the rows, with the base model by its name, since it is not loaded yet."""
    fields = dataclasses.asdict(spec)
    options = {name: value for name, value in fields.items() if name not in {*_PLACES, "full"}}
    return {**options, **(fields["full"] or {}), "data": split.data_digest, "validation": split.validation_digest}


def described_in_full(spec: TrainSpec, split: Split, base: "BaseModel", *, processes: int) -> Description:
    """With the weights that it begins with instead of their name, and by how many processes a step's rows are multiplied."""
    return {**described(spec, split), "base_model": _weights_of(base), "processes": processes}


def digest_of(description: Description) -> str:
    return hashlib.sha256(json.dumps(description, sort_keys=True).encode()).hexdigest()[:12]


def _weights_of(base: "BaseModel") -> str:
    """A digest of a folder's files, or the commit of a Hub model as it was loaded."""
    folder = Path(base.name).expanduser()
    if folder.is_dir():
        return revision_of_folder(folder)
    return f"{base.name}@{getattr(base.model.config, '_commit_hash', None) or base.revision}"


STATE = "trainer_state.json"  # the Trainer's name for it
DESCRIPTION = "training.json"


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


def checkpoint_to_resume(place: TrainPlace, description: Description, tell: Callable[[str], None]) -> Checkpoint | None:
    """The newest checkpoint of this training, in its folder. Several processes call it in turn.

    Raises UsageError if the checkpoints are of another training.
    """
    if is_first_process():
        if not place.resume:
            forget(place.folder)
        _claim_folder(place.folder, description)
    checkpoint = last_checkpoint(place.folder)
    if checkpoint and is_first_process():
        tell(f"Going on after step {checkpoint.step:,}, from {checkpoint.folder}")
    return checkpoint


def forget(folder: Path) -> None:
    """Delete the checkpoints. Other files in the folder stay."""
    (folder / DESCRIPTION).unlink(missing_ok=True)
    for checkpoint in _checkpoints_in(folder):
        shutil.rmtree(checkpoint, ignore_errors=True)
    if folder.is_dir() and not any(folder.iterdir()):
        folder.rmdir()


def _claim_folder(folder: Path, wanted: Description) -> None:
    """Make the folder for this training, or check that it is of the same one. Raises UsageError if it is not."""
    file = folder / DESCRIPTION
    if file.exists():
        _check_equal(json.loads(file.read_text()), wanted, folder)
        return
    if folder.exists() and any(folder.iterdir()):
        raise UsageError(f"{folder} holds other files. Name another folder with --checkpoints.")
    folder.mkdir(parents=True, exist_ok=True)
    partial = folder.with_name(f".{folder.name}.partial")
    partial.write_text(json.dumps(wanted, indent=1))
    partial.replace(file)


def last_checkpoint(folder: Path) -> Checkpoint | None:
    """The newest whole checkpoint. Deletes one that was not written to its end, or whose best one is gone.

    Without its best one, the Trainer would end with the last weights instead of the best, and only warn.
    """
    found = None
    for checkpoint in _checkpoints_in(folder):  # a best one comes before those that refer to it
        try:
            state = json.loads((checkpoint / STATE).read_text())
            _check_tensors(checkpoint)
            whole = _moved(checkpoint, state)
        except (FileNotFoundError, SafetensorError, ValueError, KeyError):  # any other error of the disk may pass
            shutil.rmtree(checkpoint)
            continue
        if whole.best is None or whole.best.is_dir():
            found = whole
        else:
            shutil.rmtree(checkpoint)
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


def _check_tensors(checkpoint: Path) -> None:
    """Raises SafetensorError or ValueError for a file that is cut. A machine that loses its power may leave such files."""
    for file in checkpoint.iterdir():
        if file.suffix == ".safetensors":
            with safe_open(file, "numpy"):
                pass
        elif file.suffix in (".pt", ".pth") and not zipfile.is_zipfile(file):  # it looks for the directory at the end
            raise ValueError(f"{file} is not whole")


def _checkpoints_in(folder: Path) -> list[Path]:
    """Whole or not, by their steps."""
    found = (path for path in folder.glob("checkpoint-*") if re.fullmatch(r"checkpoint-\d+", path.name))
    return sorted(found, key=lambda path: int(path.name.removeprefix("checkpoint-")))


def _check_equal(found: Description, wanted: Description, folder: Path) -> None:
    """Raises UsageError that says what differs from the training whose checkpoints are in this folder."""
    changed = [name for name in wanted if found.get(name) != wanted[name]]
    if changed:
        told = ", ".join(f"{name.replace('_', ' ')} was {found.get(name)}, is {wanted[name]}" for name in changed)
        raise UsageError(
            f"The checkpoints in {folder} are of another training: {told}. Name another folder with --checkpoints, or add "
            "--no-resume to delete them and start again."
        )
