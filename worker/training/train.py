"""Train a classifier, from labelled rows to a model folder. Knows no queue.

Rows, labels, base model and output are looked at before torch is imported, which takes seconds: a mistake is told at once.
"""

import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from fleet.process.wording import counted
from fleet.run.model import with_revision
from fleet.run.sequence_classifier import THRESHOLD, pinned_model
from worker.training.base_model import DEMO_ENCODER, verified_demo_encoder
from worker.training.card import model_card, remove_partial, save_model
from worker.training.checkpoints import described, digest_of, forget
from worker.training.labels import LabelSource, Teacher, label_source
from worker.training.metrics import measure
from worker.training.output import model_output
from worker.training.place import TrainPlace, is_first_process
from worker.training.report import TrainReport, draw_pictures
from worker.training.rows import Split, read_split
from worker.training.spec import TrainSpec

if TYPE_CHECKING:
    from worker.training.trained import Trained

_VERSIONS = ("shardsift", "torch", "transformers", "scikit-learn")
_HERE = TrainPlace()


def train(
    spec: TrainSpec, place: TrainPlace = _HERE, tell: Callable[[str], None] = lambda line: None
) -> TrainReport | None:
    """Train what the spec says, and save it. `tell` gets lines about the progress.

    `AutoModelForSequenceClassification.from_pretrained` loads the result. The output appears whole or not at all, and is never
    overwritten. Of several processes, only the first one saves it and returns a report. There is none if a repository on the
    Hub already has the model of this training, because a process ended between the commit and its own end.
    Raises UsageError for labels, models and outputs that do not fit, and Stopped when a signal ended it.
    """
    began = time.monotonic()
    is_first = is_first_process()
    if spec.full is None and not is_first:
        return None
    source, output = label_source(spec), model_output(spec.output_uri)
    place = place.beside(spec.output_uri, output.name)
    if is_first:
        _check_base(spec)
        output.reserve()
    split = read_split(spec, source)
    training = digest_of(described(spec, split))
    if output.holds(training):
        if is_first:
            tell(f"{spec.output_uri} already has the model of this training.")
            remove_partial(output, place)
            forget(place.folder)
        return None
    if is_first and source.teacher:
        tell(_rows_told(source.teacher, split))
    if is_first and split.could_be_classes and spec.task == "auto":
        tell("The labels 0 and 1 are learned as numbers. --task classification learns them as two classes.")
    trained = _trained(_with_base(spec), split, place, tell)
    if not is_first:
        return None
    trained.base.model.config.update({THRESHOLD: split.threshold})
    report = _report(spec, source, split, trained, seconds=time.monotonic() - began)
    save_model(trained.base, output, partial(_write_figures, report), place, training=training)
    forget(place.folder)
    return report


def _check_base(spec: TrainSpec) -> None:
    """Raises UsageError if there is no such model. On the Hub, only its config is looked at."""
    if spec.base_model != DEMO_ENCODER:
        pinned_model(*with_revision(spec.base_model))


def _rows_told(teacher: Teacher, split: Split) -> str:
    left_out = f", {split.left_out:,} with a lower score left out" if split.left_out else ""
    return f"{counted(split.rows, 'row')} labelled by {teacher.model}{left_out}"


def _write_figures(report: TrainReport, folder: Path) -> None:
    draw_pictures(folder, report.held_out)
    (folder / "README.md").write_text(model_card(report))


def _trained(spec: TrainSpec, split: Split, place: TrainPlace, tell: Callable[[str], None]) -> "Trained":
    if spec.full is None:
        from worker.training.frozen import train_frozen

        return train_frozen(spec, split, device=place.device, tell=tell)
    from worker.training.full import train_full

    return train_full(spec, spec.full, split, place=place, tell=tell)


def _with_base(spec: TrainSpec) -> TrainSpec:
    return replace(spec, base_model=verified_demo_encoder()) if spec.base_model == DEMO_ENCODER else spec


def _report(spec: TrainSpec, source: LabelSource, split: Split, trained: "Trained", *, seconds: float) -> TrainReport:
    return TrainReport(
        spec=spec,
        source=source,
        classes=split.target.classes,
        threshold=split.threshold,
        rows=split.rows,
        held_out=measure(trained.held_out_logits, split.held_out.targets, split.target, threshold=split.threshold),
        seconds=seconds,
        rows_per_second=trained.rows_per_second,
        work_seconds=trained.work_seconds,
        peak_memory_bytes=trained.peak_memory_bytes,
        device=trained.device,
        dtype=trained.dtype,
        steps=trained.steps,
        versions={name: version(name) for name in _VERSIONS},
    )
