"""Train a classifier in this process: `shardsift.train`, as `worker train` does. Knows no queue."""

from typing import Unpack

from shardsift.fleet.errors import Stopped
from shardsift.fleet.process.command_line import say
from shardsift.fleet.process.keywords import keyword_errors, options_from, with_help_of
from shardsift.fleet.process.settings import read_settings
from shardsift.worker.scoring.quiet import quiet_imports
from shardsift.worker.training.train import train as train_model
from shardsift.worker.training.train_options import TrainKeywords, TrainOptions
from shardsift.worker.training.train_report import TrainReport


@with_help_of(TrainOptions)
def train(*, device: str | None = None, progress: bool = True, **keywords: Unpack[TrainKeywords]) -> TrainReport:
    """Train a classifier on labelled texts in this process, and save it as a model folder. Returns a report.

    >>> shardsift.train(data="labelled.parquet", base_model="./all-MiniLM-L6-v2", output="./my-classifier")
    <TrainReport ./my-classifier: accuracy 91.2%, F1 0.904 of 1,200 held-out rows>
    >>> scores = shardsift.score(texts, "./my-classifier")

    By default the encoder is frozen, as for fineweb-edu-classifier: each text is embedded once, and a last layer is
    fitted to the embeddings. With `full=True`, all weights are trained. Then an interrupt saves a checkpoint and raises
    KeyboardInterrupt, and the same call continues after the last checkpoint. An existing output is never overwritten.

    device: "cuda", "cpu" and so on. Default: SHARDSIFT_DEVICE, otherwise this machine's best device.
    progress: show progress on stderr.

    If `torchrun` started several processes, only the first one returns; the others exit. Raises UsageError for wrong
    options, and for labels, models and outputs that cannot be used.
    """
    with keyword_errors(), quiet_imports():
        chosen, printed = options_from(TrainOptions, keywords), say if progress else lambda line: None
        try:
            report = train_model(chosen, device=read_settings(device=device).device, say=printed)
        except Stopped as stop:
            raise KeyboardInterrupt(str(stop)) from None
    if report is None:
        raise SystemExit(0)
    return report
