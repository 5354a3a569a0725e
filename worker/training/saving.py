"""Write a model folder whole or not at all."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

from transformers import AutoTokenizer

from fleet.errors import UsageError
from worker.scoring.quiet import quiet_transformers
from worker.training.base_model import BaseModel
from worker.training.place import TrainPlace


def check_free(output: Path) -> None:
    if output.exists() and not (output.is_dir() and not any(output.iterdir())):
        raise UsageError(f"{output} already exists. Name another folder for the model, or remove this one.")


def save_model(base: BaseModel, output: Path, write_more: Callable[[Path], None], place: TrainPlace) -> None:
    """Write to a folder beside the output, then rename it. `write_more` adds files to the folder that it gets.

    The folder is of this attempt alone. An attempt that has lost its lease does not rename it.
    """
    partial = output.with_name(f".{output.name}.{place.attempt}partial")
    try:
        shutil.rmtree(partial, ignore_errors=True)  # of a process that was killed
        partial.mkdir(parents=True)
        with quiet_transformers():
            base.model.save_pretrained(partial)
            tokenizer = AutoTokenizer.from_pretrained(
                base.name, revision=base.revision
            )  # a new one: ours has truncation set
            tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
            tokenizer.save_pretrained(partial)
        write_more(partial)
        _let_others_read(partial)
        if place.watcher:
            place.watcher.confirm()
        partial.replace(output)
    except OSError as error:
        raise UsageError(f"The classifier cannot be saved at {output}: {error.strerror or error}.") from error


def drop_partial(output: Path) -> None:
    """Delete what killed attempts left beside the output."""
    for folder in output.parent.glob(f".{output.name}.*.partial"):
        shutil.rmtree(folder, ignore_errors=True)


def _let_others_read(folder: Path) -> None:
    """Make the files readable for others, within the umask.

    safetensors makes its files readable for their owner only, and a worker may run as another user.
    """
    umask = os.umask(0)
    os.umask(umask)
    for file in folder.iterdir():
        file.chmod(0o666 & ~umask)
