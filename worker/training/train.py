"""Train a classifier, from labelled rows to a model folder. Knows no queue."""

import time
from collections.abc import Callable
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

from fleet.trained_model import MARK
from fleet.training import TrainSpec
from worker.training.card import model_card
from worker.training.checkpoints import default_folder, forget
from worker.training.demo_encoder import DEMO_ENCODER, verified_demo_encoder
from worker.training.frozen import train_frozen
from worker.training.full import train_full
from worker.training.metrics import measure
from worker.training.pictures import draw_pictures
from worker.training.place import TrainPlace
from worker.training.processes import is_first_process
from worker.training.report import TrainReport, told_model
from worker.training.saving import check_free, save_model
from worker.training.splits import Split, read_split
from worker.training.trained import Trained

_VERSIONS = ("shardsift", "torch", "transformers", "scikit-learn")
_HERE = TrainPlace()


def train(
    spec: TrainSpec, place: TrainPlace = _HERE, tell: Callable[[str], None] = lambda line: None
) -> TrainReport | None:
    """Train what the spec says, and save it. `tell` gets lines about the progress.

    `AutoModelForSequenceClassification.from_pretrained(spec.output_uri)` loads the result. The output appears whole or not at
    all, and is never overwritten. Of several processes, only the first one saves it and returns a report.
    Raises UsageError for labels, models and outputs that do not fit, and TrainingStopped when a signal ended it.
    """
    began = time.monotonic()
    if spec.full is None and not is_first_process():
        return None
    output = Path(spec.output_uri).expanduser().absolute()
    check_free(output)
    place = replace(place, checkpoints=(place.checkpoints or default_folder(output)).expanduser().absolute())
    split = read_split(spec)
    trained = _trained(_with_base(spec), split, place, tell)
    if not is_first_process():
        return None
    report = _report(spec, split, trained, seconds=time.monotonic() - began)
    save_model(trained.base, output, lambda folder: _write_figures(folder, report), place)
    forget(place.folder)
    return report


def _write_figures(folder: Path, report: TrainReport) -> None:
    draw_pictures(folder, report.held_out)
    (folder / "README.md").write_text(model_card(report))
    (folder / MARK).write_bytes(told_model(report).to_json())


def _trained(spec: TrainSpec, split: Split, place: TrainPlace, tell: Callable[[str], None]) -> Trained:
    if spec.full is None:
        return train_frozen(spec, split, device=place.device, tell=tell, go_on=_go_on(place))
    return train_full(spec, spec.full, split, place=place, tell=tell)


def _go_on(place: TrainPlace) -> Callable[..., bool]:
    """Whether a watcher lets the training go on. Raises LeaseLost if it may write nothing any more."""

    def go_on(*_: int) -> bool:
        watcher = place.watcher
        if watcher is None:
            return True
        watcher.on_sign_of_life()
        watcher.check()
        return not watcher.wants_stop

    return go_on


def _with_base(spec: TrainSpec) -> TrainSpec:
    return replace(spec, base_model=verified_demo_encoder()) if spec.base_model == DEMO_ENCODER else spec


def _report(spec: TrainSpec, split: Split, trained: Trained, *, seconds: float) -> TrainReport:
    return TrainReport(
        spec=spec,
        classes=split.target.classes,
        rows=len(split.all_rows),
        held_out=measure(trained.held_out_logits, split.held_out.targets, split.target, threshold=spec.threshold),
        seconds=seconds,
        rows_per_second=trained.rows_per_second,
        peak_memory_bytes=trained.peak_memory_bytes,
        device=trained.device,
        dtype=trained.dtype,
        steps=trained.steps,
        versions={name: version(name) for name in _VERSIONS},
    )
