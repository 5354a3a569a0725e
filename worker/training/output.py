"""Write a trained model to a new folder or to a model repository of the Hub. It appears whole or not at all."""

import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryFile
from typing import TYPE_CHECKING

from huggingface_hub import HfApi

from fleet.errors import ShardError, TransientError, UsageError
from fleet.storage.errors import translated
from worker.scoring.quiet import quiet_transformers

if TYPE_CHECKING:
    from worker.scoring.saved_model import SavedModel

_HUB = "hf://"
_MODEL_ON_HUB = re.compile(r"hf://(?!(?:datasets|spaces|buckets)/)[^/@]+/[^/@]+/?")
_FRESH = {".gitattributes"}  # the files of a new repository


class ModelFolder:
    """A folder that is written beside its place, then renamed."""

    def __init__(self, path: str) -> None:
        self._folder = Path(path).expanduser().absolute()
        self.partial = self._folder.with_name(f".{self._folder.name}.partial")  # a rename needs the same disk

    def reserve(self) -> None:
        """Raises UsageError if a model cannot be written here, or there is something else."""
        if self._folder.exists() and not (self._folder.is_dir() and not any(self._folder.iterdir())):
            raise UsageError(f"{self._folder} already exists. Name another folder for the model, or remove this one.")
        try:
            self._folder.parent.mkdir(parents=True, exist_ok=True)
            with TemporaryFile(dir=self._folder.parent):
                pass
        except OSError as error:
            raise UsageError(f"{self._folder} cannot be written: {error.strerror}. Name another --output.") from error

    def store(self) -> None:
        """Make the partial folder the model."""
        self.partial.replace(self._folder)


class ModelRepository:
    """A repository that is created empty, and gets the model in one commit."""

    def __init__(self, uri: str) -> None:
        self.repo_id = uri.removeprefix(_HUB).rstrip("/")
        self.partial = Path(f".{self.repo_id.partition('/')[2]}.partial").absolute()
        self._uri = uri
        self._api = HfApi()

    def reserve(self) -> None:
        """Create the repository, private, unless it exists. Raises UsageError if it holds files or cannot be written."""
        with self._told("The output must be a model repository that HF_TOKEN can write."):
            self._api.create_repo(self.repo_id, private=True, exist_ok=True)
            self._check_is_free()

    def store(self) -> None:
        """Commit the files of the partial folder, and remove it."""
        with self._told("If it has no model, run the same command again."):
            self._check_is_free()
            self._api.upload_folder(repo_id=self.repo_id, folder_path=self.partial, commit_message="Train a classifier")
        shutil.rmtree(self.partial)

    def _check_is_free(self) -> None:
        if not set(self._api.list_repo_files(self.repo_id)) <= _FRESH:
            raise UsageError(
                f"{self._uri} already holds files. Name another repository for the model, or delete this one."
            )

    @contextmanager
    def _told(self, remedy: str) -> Iterator[None]:
        try:
            with translated(f"Writing the model to {self._uri}"):
                yield
        except (ShardError, TransientError) as error:
            raise UsageError(f"{error} {remedy}") from error


ModelOutput = ModelFolder | ModelRepository


def model_output(uri: str) -> ModelOutput:
    """Raises UsageError for a URI at which no model can be written."""
    if not uri:
        raise UsageError("--output is empty: is a shell variable unset? Name a folder or hf://USER/NAME.")
    if _MODEL_ON_HUB.fullmatch(uri):
        return ModelRepository(uri)
    if "://" in uri:
        raise UsageError(f"A model is written to a folder or to hf://USER/NAME, and --output is {uri}.")
    return ModelFolder(uri)


def save_model(base: "SavedModel", output: ModelOutput, write_more: Callable[[Path], None]) -> None:
    """Write to a partial folder, then make it the output. `write_more` adds files to the folder that it gets."""
    from transformers import AutoTokenizer

    partial = output.partial
    try:
        shutil.rmtree(partial, ignore_errors=True)  # of a process that was killed after the last step
        partial.mkdir(parents=True)
        with quiet_transformers():
            base.model.save_pretrained(partial)
            # A new one, since that of the training has truncation set.
            tokenizer = AutoTokenizer.from_pretrained(base.tokenizer.name_or_path, revision=base.revision)
            tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
            tokenizer.save_pretrained(partial)
        write_more(partial)
        _let_others_read(partial)
        output.store()
    except OSError as error:
        raise UsageError(f"The classifier cannot be saved in {partial}: {error.strerror or error}.") from error


def _let_others_read(folder: Path) -> None:
    """Make the files readable for others, within the umask.

    safetensors makes its files readable for their owner only, and a worker may run as another user.
    """
    umask = os.umask(0)
    os.umask(umask)
    for file in folder.iterdir():
        file.chmod(0o666 & ~umask)
