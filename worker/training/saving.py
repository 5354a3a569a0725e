"""Write the files of a trained model."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from fleet.errors import UsageError
from fleet.storage.model_output import ModelOutput
from worker.scoring.quiet import quiet_transformers
from worker.training.place import TrainPlace

if TYPE_CHECKING:  # so that importing this loads no torch
    from worker.training.base_model import BaseModel


def save_model(
    base: "BaseModel", output: ModelOutput, write_more: Callable[[Path], None], place: TrainPlace, *, training: str
) -> None:
    """Write to a partial folder, then make it the output. `write_more` adds files to the folder that it gets."""
    from transformers import AutoTokenizer

    partial = output.partial(place.folder)
    try:
        remove_partial(output, place)
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
        output.store(partial, training)
    except OSError as error:
        raise UsageError(f"The classifier cannot be saved as {output.name}: {error.strerror or error}.") from error


def remove_partial(output: ModelOutput, place: TrainPlace) -> None:
    """What a process left that was killed after the last step."""
    shutil.rmtree(output.partial(place.folder), ignore_errors=True)


def _let_others_read(folder: Path) -> None:
    """Make the files readable for others, within the umask.

    safetensors makes its files readable for their owner only, and a worker may run as another user.
    """
    umask = os.umask(0)
    os.umask(umask)
    for file in folder.iterdir():
        file.chmod(0o666 & ~umask)
