"""Train a classifier, from labelled rows to a model folder. Knows no queue.

Checks rows, labels, base model and output before it imports torch, which takes seconds, so that a mistake is reported at once.
"""

import importlib.util
import os
from collections.abc import Callable
from dataclasses import replace
from importlib.metadata import version
from typing import TYPE_CHECKING

from fleet.errors import UsageError
from fleet.run.model import with_revision
from fleet.run.sequence_classifier import THRESHOLD, pinned_model
from worker.scoring import ModelError
from worker.training.card import write_card
from worker.training.checkpoints import forget
from worker.training.labelled import Split, label_source, read_split
from worker.training.options import DEMO_ENCODER, TrainOptions
from worker.training.output import model_output, save_model
from worker.training.report import TrainReport, measure

if TYPE_CHECKING:
    from worker.training.base_model import Trained

# Modules that training needs, with the names by which pip knows them.
_NEEDED = {
    "torch": "torch",
    "transformers": "transformers",
    "sklearn": "scikit-learn",
    "accelerate": "accelerate",
    "matplotlib": "matplotlib",
}
_VERSIONS = ("shardsift", "torch", "transformers", "scikit-learn")


def train(
    options: TrainOptions,
    *,
    device: str = "auto",
    tell: Callable[[str], None] = lambda line: None,
) -> TrainReport | None:
    """Train what the options say, and save it. `tell` gets lines about the progress.

    `AutoModelForSequenceClassification.from_pretrained` loads the result. The output appears whole or not at all, and is never
    overwritten. Of the processes that `torchrun` starts, only the first one saves it and returns a report.
    Raises UsageError for labels, models and outputs that do not fit, and Stopped when a signal ended it.
    """
    _check_installed()
    is_first = int(os.environ.get("RANK", 0)) == 0
    if not is_first and not options.full:
        return None
    source, output = label_source(options), model_output(options.output)
    checkpoints = options.checkpoint_folder
    if is_first:
        if options.base_model != DEMO_ENCODER:
            pinned_model(*with_revision(options.base_model))  # raises UsageError if there is no such model
        output.reserve()
    split = read_split(options, source)
    if is_first and split.could_be_classes and options.task == "auto":
        tell("The labels 0 and 1 are learned as numbers. --task classification learns them as two classes.")
    try:
        trained = _trained(options, split, device=device, tell=tell)
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
    save_model(trained.base, output, lambda model: write_card(model, report))
    forget(checkpoints)
    return report


def _check_installed() -> None:
    """Raises UsageError if a package is missing, with the command that installs it. Imports none of them."""
    missing = [name for module, name in _NEEDED.items() if not importlib.util.find_spec(module)]
    if missing:
        raise UsageError(
            f"Training needs {' and '.join(missing)}. Install it with: pip install 'shardsift[worker,train]'"
        )


def _trained(options: TrainOptions, split: Split, *, device: str, tell: Callable[[str], None]) -> "Trained":
    if options.base_model == DEMO_ENCODER:
        from worker.training.base_model import verified_demo_encoder

        options = replace(options, base_model=verified_demo_encoder())
    if options.full:
        from worker.training.all_weights import train_all_weights

        return train_all_weights(options, split, device=device, tell=tell)
    from worker.training.last_layer import train_last_layer

    return train_last_layer(options, split, device=device, tell=tell)
