"""Train a classifier on labelled rows, and save it as a folder or on the Hub. Knows no queue.

Checks rows, labels, base model and output before it imports torch, which takes seconds, to report mistakes at once.
"""

import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryFile
from typing import TYPE_CHECKING

from huggingface_hub import HfApi

from shardsift.fleet.errors import ShardError, TransientError, UsageError, require
from shardsift.fleet.process.wording import is_url, local_path
from shardsift.fleet.run.model import with_revision
from shardsift.fleet.run.model_config import THRESHOLD
from shardsift.fleet.scorers.sequence_classifier import pinned_model
from shardsift.fleet.storage.errors import translated
from shardsift.worker.scoring import ModelError
from shardsift.worker.scoring.quiet import quiet_transformers
from shardsift.worker.training.labelled import Split, label_source, read_split
from shardsift.worker.training.train_options import DEMO_ENCODER, TrainOptions
from shardsift.worker.training.train_report import TrainReport, measure, write_card

if TYPE_CHECKING:
    from shardsift.worker.scoring.saved_model import SavedModel
    from shardsift.worker.training.base_model import Trained

_NEEDED = ("torch", "transformers", "sklearn", "accelerate", "matplotlib")
_VERSIONS = ("shardsift", "torch", "transformers", "scikit-learn")
_HUB = "hf://"
_MODEL_ON_HUB = re.compile(r"hf://(?!(?:datasets|spaces|buckets)/)[^/@]+/[^/@]+/?")
_FRESH = {".gitattributes"}  # the only file of a new repository


def train(
    options: TrainOptions,
    *,
    device: str = "auto",
    say: Callable[[str], None] = lambda line: None,
) -> TrainReport | None:
    """Train a classifier, and save it. Calls `say` with lines about the progress.

    `AutoModelForSequenceClassification.from_pretrained` can load the result. The output appears atomically, and nothing
    is overwritten. Of the processes that `torchrun` starts, only the first one saves the model and returns a report.
    Raises UsageError for labels, models and outputs that cannot be used, and Stopped after a signal.
    """
    require(_NEEDED, "shardsift[worker,train]", "Training")
    options.check()
    is_first = int(os.environ.get("RANK", 0)) == 0
    if not is_first and not options.full:
        return None
    source, output = label_source(options), model_output(options.output)
    checkpoints = options.checkpoint_folder
    if is_first:
        if options.base_model != DEMO_ENCODER:
            pinned_model(*with_revision(options.base_model))  # raises UsageError for a missing model
        output.reserve()
    split = read_split(options, source)
    if is_first and split.could_be_classes and options.task == "auto":
        say("The labels 0 and 1 are learned as numbers. --task classification learns them as two classes.")
    try:
        trained = _trained(options, split, device=device, say=say if is_first else lambda line: None)
    except ModelError as error:
        raise UsageError(str(error)) from error
    if not is_first:
        return None
    trained.base.model.config.update({THRESHOLD: split.threshold})
    report = TrainReport(
        options=options,
        source=source,
        classes=split.target.classes,
        threshold=split.threshold,
        rows=split.rows,
        held_out=measure(trained.held_out_logits, split.held_out.targets, split.target, threshold=split.threshold),
        rows_per_second=trained.rows_per_second,
        device=trained.device,
        dtype=trained.dtype,
        steps=trained.steps,
        versions={name: version(name) for name in _VERSIONS},
    )
    _save(trained.base, output, report)
    if options.full:
        from shardsift.worker.training.all_weights import forget

        forget(checkpoints)
    return report


def _trained(options: TrainOptions, split: Split, *, device: str, say: Callable[[str], None]) -> "Trained":
    if options.base_model == DEMO_ENCODER:
        from shardsift.worker.training.base_model import verified_demo_encoder

        options = replace(options, base_model=verified_demo_encoder())
    if options.full:
        from shardsift.worker.training.all_weights import train_all_weights

        return train_all_weights(options, split, device=device, say=say)
    from shardsift.worker.training.last_layer import train_last_layer

    return train_last_layer(options, split, device=device, say=say)


# The output: a new folder or a model repository on the Hub, where the model appears atomically.


class ModelFolder:
    """A folder that is written under another name, then renamed."""

    def __init__(self, path: str) -> None:
        self._folder = local_path(path)
        self.partial = self._folder.with_name(f".{self._folder.name}.partial")  # on the same disk, to be renamed

    def reserve(self) -> None:
        """Raise UsageError if a model cannot be written here, or if something is there already."""
        if self._folder.exists() and not (self._folder.is_dir() and not any(self._folder.iterdir())):
            raise UsageError(f"{self._folder} already exists. Name another folder for the model, or remove this one.")
        try:
            self._folder.parent.mkdir(parents=True, exist_ok=True)
            with TemporaryFile(dir=self._folder.parent):
                pass
        except OSError as error:
            raise UsageError(f"{self._folder} cannot be written: {error.strerror}. Name another --output.") from error

    def store(self) -> None:
        self.partial.replace(self._folder)


class ModelRepository:
    """A repository that is created empty, and then gets the model in one commit."""

    def __init__(self, uri: str) -> None:
        self.repo_id = uri.removeprefix(_HUB).rstrip("/")
        self.partial = Path(f".{self.repo_id.partition('/')[2]}.partial").absolute()
        self._uri = uri
        self._api = HfApi()

    def reserve(self) -> None:
        """Create a private repository unless it exists. Raises UsageError if it holds files or cannot be written."""
        with self._usage_errors("The output must be a model repository that HF_TOKEN can write."):
            self._api.create_repo(self.repo_id, private=True, exist_ok=True)
            self._check_is_free()

    def store(self) -> None:
        with self._usage_errors("If it has no model, run the same command again."):
            self._check_is_free()
            self._api.upload_folder(repo_id=self.repo_id, folder_path=self.partial, commit_message="Train a classifier")
        shutil.rmtree(self.partial)

    def _check_is_free(self) -> None:
        if not set(self._api.list_repo_files(self.repo_id)) <= _FRESH:
            raise UsageError(
                f"{self._uri} already holds files. Name another repository for the model, or delete this one."
            )

    @contextmanager
    def _usage_errors(self, remedy: str) -> Iterator[None]:
        try:
            with translated(f"Writing the model to {self._uri}"):
                yield
        except (ShardError, TransientError) as error:
            raise UsageError(f"{error} {remedy}") from error


ModelOutput = ModelFolder | ModelRepository


def model_output(uri: str) -> ModelOutput:
    """Choose the kind of output. Raises UsageError for a URI at which no model can be written."""
    if not uri:
        raise UsageError("--output is empty: is a shell variable unset? Name a folder or hf://USER/NAME.")
    if _MODEL_ON_HUB.fullmatch(uri):
        return ModelRepository(uri)
    if is_url(uri):
        raise UsageError(f"A model is written to a folder or to hf://USER/NAME, and --output is {uri}.")
    return ModelFolder(uri)


def _save(base: "SavedModel", output: ModelOutput, report: TrainReport) -> None:
    from transformers import AutoTokenizer

    partial = output.partial
    try:
        shutil.rmtree(partial, ignore_errors=True)  # left by a process that was killed after the last step
        partial.mkdir(parents=True)
        with quiet_transformers():
            base.model.save_pretrained(partial)
            # Read the tokenizer again, because the training has set truncation in the loaded one.
            tokenizer = AutoTokenizer.from_pretrained(base.tokenizer.name_or_path, revision=base.revision)
            tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
            tokenizer.save_pretrained(partial)
        write_card(partial, report)
        _let_others_read(partial)
        output.store()
    except OSError as error:
        raise UsageError(f"The classifier cannot be saved in {partial}: {error.strerror or error}.") from error


def _let_others_read(folder: Path) -> None:
    """Make the files readable for others, within the umask, because a worker may run as another user.

    safetensors makes its files readable only for their owner.
    """
    umask = os.umask(0)
    os.umask(umask)
    for file in folder.iterdir():
        file.chmod(0o666 & ~umask)
