"""Write a trained model to a new folder or to a model repository of the Hub. It appears whole or not at all."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryFile
from typing import TYPE_CHECKING

from huggingface_hub import HfApi
from huggingface_hub.errors import RepositoryNotFoundError

from fleet.errors import ShardError, TransientError, UsageError
from fleet.storage.errors import translated
from worker.scoring.quiet import quiet_transformers

if TYPE_CHECKING:
    from worker.training.base_model import BaseModel

_HUB = "hf://"
_NOT_MODELS = {"datasets", "spaces", "buckets"}  # how the URIs of other repositories begin
_FRESH = {".gitattributes"}  # the files of a new repository


class ModelFolder:
    """A folder that is written beside its place, then renamed."""

    def __init__(self, path: str) -> None:
        self._folder = Path(path).expanduser().absolute()
        self.name = self._folder.name

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

    def partial(self, beside: Path) -> Path:
        """The folder to write the model's files to. Not `beside`, since a rename needs the output's own disk."""
        return self._folder.with_name(f".{self.name}.partial")

    def store(self, partial: Path) -> None:
        """Make the files of that folder the model."""
        partial.replace(self._folder)


class ModelRepository:
    """A repository that is created empty, and gets the model in one commit."""

    def __init__(self, uri: str) -> None:
        self.repo_id = _model_repo_id(uri)
        self.name = self.repo_id.partition("/")[2]
        self._uri = uri
        self._api = HfApi()

    def reserve(self) -> None:
        """Create the repository, private, unless it exists. Raises UsageError if it holds files or cannot be written."""
        try:
            with translated(f"Preparing the output {self._uri}"):
                self._create()
                self._check_is_free()
        except (ShardError, TransientError) as error:
            raise UsageError(f"{error} The output must be a model repository that HF_TOKEN can write.") from error

    def partial(self, beside: Path) -> Path:
        """The folder to write the model's files to, on the disk of `beside`."""
        return beside.with_name(f".{self.name}.partial")

    def store(self, partial: Path) -> None:
        """Commit the files of that folder, and remove it. The Hub refuses the commit if the repository has changed."""
        try:
            with translated(f"Uploading the model to {self._uri}"):
                head = self._api.repo_info(self.repo_id).sha
                self._check_is_free()
                self._api.upload_folder(
                    repo_id=self.repo_id,
                    folder_path=partial,
                    commit_message="Train a classifier",
                    parent_commit=head,
                )
        except (ShardError, TransientError) as error:
            raise UsageError(f"{error} If {self._uri} has no model, run the same command again.") from error
        shutil.rmtree(partial)

    def _create(self) -> None:
        try:
            self._api.repo_info(self.repo_id)
        except RepositoryNotFoundError:
            self._api.create_repo(self.repo_id, private=True, exist_ok=True)
        self._api.auth_check(self.repo_id, write=True)

    def _check_is_free(self) -> None:
        if not set(self._api.list_repo_files(self.repo_id)) <= _FRESH:
            raise UsageError(
                f"{self._uri} already holds files. Name another repository for the model, or delete this one."
            )


ModelOutput = ModelFolder | ModelRepository


def model_output(uri: str) -> ModelOutput:
    """Raises UsageError for a URI at which no model can be written."""
    if not uri:
        raise UsageError("--output is empty: is a shell variable unset? Name a folder or hf://USER/NAME.")
    if uri.startswith(_HUB):
        return ModelRepository(uri)
    if "://" in uri:
        raise UsageError(f"A model is written to a folder or to hf://USER/NAME, and --output is {uri}.")
    return ModelFolder(uri)


def save_model(base: "BaseModel", output: ModelOutput, write_more: Callable[[Path], None], *, beside: Path) -> None:
    """Write to a partial folder, then make it the output. `write_more` adds files to the folder that it gets."""
    from transformers import AutoTokenizer

    partial = output.partial(beside)
    try:
        shutil.rmtree(partial, ignore_errors=True)  # of a process that was killed after the last step
        partial.mkdir(parents=True)
        with quiet_transformers():
            base.model.save_pretrained(partial)
            # A new one, since that of the training has truncation set.
            tokenizer = AutoTokenizer.from_pretrained(base.name, revision=base.revision)
            tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
            tokenizer.save_pretrained(partial)
        write_more(partial)
        _let_others_read(partial)
        output.store(partial)
    except OSError as error:
        raise UsageError(f"The classifier cannot be saved as {output.name}: {error.strerror or error}.") from error


def _let_others_read(folder: Path) -> None:
    """Make the files readable for others, within the umask.

    safetensors makes its files readable for their owner only, and a worker may run as another user.
    """
    umask = os.umask(0)
    os.umask(umask)
    for file in folder.iterdir():
        file.chmod(0o666 & ~umask)


def _model_repo_id(uri: str) -> str:
    """The `<user>/<name>` of a URI. Raises UsageError if the URI has another form."""
    repo_id = uri.removeprefix(_HUB).rstrip("/")
    user, _, name = repo_id.partition("/")
    if not user or not name or "/" in name or "@" in repo_id or user in _NOT_MODELS:
        raise UsageError(f"A model on the Hub is written hf://USER/NAME, not {uri}.")
    return repo_id
