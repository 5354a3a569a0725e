"""Where a trained model goes: a new folder, or a model repository of the Hugging Face Hub. It appears whole or not at all."""

import shutil
from pathlib import Path
from tempfile import TemporaryFile
from typing import Protocol

from huggingface_hub import CommitOperationAdd, HfApi
from huggingface_hub.errors import RepositoryNotFoundError

from fleet.errors import ShardError, TransientError, UsageError
from fleet.storage.errors import translated

_HUB = "hf://"
_NOT_MODELS = {"datasets", "spaces", "buckets"}  # how the URIs of other repositories begin
_FRESH = {".gitattributes"}  # the files of a new repository
_TITLE = "Train a classifier: "  # of the commit, before what identifies the training


class ModelOutput(Protocol):
    """`training` identifies what is trained on what, so that a training that is repeated knows its own model."""

    name: str

    def reserve(self) -> None:
        """Raises UsageError if a model cannot be written here, or there is something else. May run twice."""

    def holds(self, training: str) -> bool:
        """Whether the model of this training is here. Raises UsageError if something else is."""

    def partial(self, beside: Path) -> Path:
        """The folder to write the model's files to. `beside` is a path on a disk with room for it."""

    def store(self, partial: Path, training: str) -> None:
        """Make the files of that folder the model, and remove the folder. Raises UsageError if that fails."""


def model_output(uri: str) -> ModelOutput:
    """Raises UsageError for a URI at which no model can be written."""
    if not uri:
        raise UsageError("--output is empty: is a shell variable unset? Name a folder or hf://USER/NAME.")
    if uri.startswith(_HUB):
        return ModelRepository(uri)
    if "://" in uri:
        raise UsageError(f"A model is written to a folder or to hf://USER/NAME, and --output is {uri}.")
    return ModelFolder(uri)


class ModelFolder:
    """A folder that is written beside its place, then renamed."""

    def __init__(self, path: str) -> None:
        self._folder = Path(path).expanduser().absolute()
        self.name = self._folder.name

    def reserve(self) -> None:
        if self._folder.exists() and not (self._folder.is_dir() and not any(self._folder.iterdir())):
            raise UsageError(f"{self._folder} already exists. Name another folder for the model, or remove this one.")
        try:
            self._folder.parent.mkdir(parents=True, exist_ok=True)
            with TemporaryFile(dir=self._folder.parent):
                pass
        except OSError as error:
            raise UsageError(f"{self._folder} cannot be written: {error.strerror}. Name another --output.") from error

    def holds(self, training: str) -> bool:
        return False

    def partial(self, beside: Path) -> Path:
        return self._folder.with_name(f".{self.name}.partial")

    def store(self, partial: Path, training: str) -> None:
        partial.replace(self._folder)


class ModelRepository:
    """A repository that is created empty, and gets the model in one commit."""

    def __init__(self, uri: str) -> None:
        self.repo_id = model_repo_id(uri)
        self.name = self.repo_id.partition("/")[2]
        self._uri = uri
        self._api = HfApi()

    def reserve(self) -> None:
        """Create the repository, private, unless it exists."""
        try:
            with translated(f"Preparing the output {self._uri}"):
                self._create()
                is_free = self._is_fresh() or any(map(_is_ours, self._titles()))
        except (ShardError, TransientError) as error:
            raise UsageError(f"{error} The output must be a model repository that HF_TOKEN can write.") from error
        if not is_free:
            raise self._taken()

    def holds(self, training: str) -> bool:
        with translated(f"Reading {self._uri}"):
            if self._is_fresh():  # also if its files were deleted by a later commit
                return False
            if _title(training) not in self._titles():
                raise self._taken()
        return True

    def partial(self, beside: Path) -> Path:
        return beside.with_name(f".{self.name}.partial")

    def store(self, partial: Path, training: str) -> None:
        """The Hub refuses the commit if the repository has changed. One whose answer was lost is found by its title."""
        try:
            with translated(f"Uploading the model to {self._uri}"):
                self._commit(partial, training)
        except (ShardError, TransientError) as error:
            if not self._has_landed(training):
                raise UsageError(f"{error} Run the same command again.") from error
        shutil.rmtree(partial)

    def _commit(self, partial: Path, training: str) -> None:
        head = str(self._api.repo_info(self.repo_id).sha)
        if self.holds(training):
            return
        files = [CommitOperationAdd(file.name, str(file)) for file in sorted(partial.iterdir())]
        self._api.create_commit(self.repo_id, files, commit_message=_title(training), parent_commit=head)

    def _has_landed(self, training: str) -> bool:
        try:
            return self.holds(training)
        except (ShardError, TransientError):
            return False

    def _create(self) -> None:
        try:
            self._api.repo_info(self.repo_id)
        except RepositoryNotFoundError:
            self._api.create_repo(self.repo_id, private=True, exist_ok=True)
        self._api.auth_check(self.repo_id, write=True)

    def _is_fresh(self) -> bool:
        return set(self._api.list_repo_files(self.repo_id)) <= _FRESH

    def _titles(self) -> list[str]:
        return [commit.title for commit in self._api.list_repo_commits(self.repo_id)]

    def _taken(self) -> UsageError:
        return UsageError(
            f"{self._uri} already holds files. Name another repository for the model, or delete this one."
        )


def model_repo_id(uri: str) -> str:
    """The `<user>/<name>` of a URI. Raises UsageError if the URI has another form."""
    repo_id = uri.removeprefix(_HUB).rstrip("/")
    user, _, name = repo_id.partition("/")
    if not user or not name or "/" in name or "@" in repo_id or user in _NOT_MODELS:
        raise UsageError(f"A model on the Hub is written hf://USER/NAME, not {uri}.")
    return repo_id


def _title(training: str) -> str:
    return f"{_TITLE}{training}"


def _is_ours(title: str) -> bool:
    return title.startswith(_TITLE)
