"""Train a classifier, from labelled rows to a model folder. Knows no queue.

Checks rows, labels, base model and output before it imports torch, which takes seconds, so that a mistake is reported at once.
"""

import os
from collections.abc import Callable
from dataclasses import replace
from importlib.metadata import version
from typing import TYPE_CHECKING

from fleet.run.model import with_revision
from fleet.run.sequence_classifier import THRESHOLD, pinned_model
from worker.training.card import write_card
from worker.training.checkpoints import forget
from worker.training.labels import label_source
from worker.training.options import DEMO_ENCODER, TrainOptions
from worker.training.output import model_output, save_model
from worker.training.report import TrainReport, measure
from worker.training.rows import Split, read_split

if TYPE_CHECKING:
    from worker.training.base_model import Trained

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
    is_first = int(os.environ.get("RANK", 0)) == 0
    if not is_first and not options.full:
        return None
    source, output = label_source(options), model_output(options.output)
    folder = options.checkpoint_folder
    if is_first:
        if options.base_model != DEMO_ENCODER:
            pinned_model(*with_revision(options.base_model))  # raises UsageError if there is no such model
        output.reserve()
    split = read_split(options, source)
    if is_first and split.could_be_classes and options.task == "auto":
        tell("The labels 0 and 1 are learned as numbers. --task classification learns them as two classes.")
    trained = _trained(options, split, device=device, tell=tell)
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
    forget(folder)
    return report


def _trained(options: TrainOptions, split: Split, *, device: str, tell: Callable[[str], None]) -> "Trained":
    from worker.training.base_model import verified_demo_encoder

    if options.base_model == DEMO_ENCODER:
        options = replace(options, base_model=verified_demo_encoder())
    if options.full:
        from worker.training.full import train_full

        return train_full(options, split, device=device, tell=tell)
    from worker.training.frozen import train_frozen

    return train_frozen(options, split, device=device, tell=tell)
