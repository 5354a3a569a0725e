"""Options of `worker train` that say what is trained, and how. Knows no torch."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from fleet.errors import UsageError
from fleet.process.command_line import with_options_of
from worker.training.spec import ClassWeights, FullTraining, TrainDtype, TrainSpec, TrainTask

_DATA, _MEASURE, _FULL = "What to learn from", "What to measure", "With --full"
_DEFAULTS = FullTraining()


@dataclass(frozen=True, kw_only=True)
class TrainOptions:
    """What a user may choose about a training. The annotations are those of the command line."""

    base_model: Annotated[
        str,
        typer.Option(
            metavar="MODEL",
            help="Hub name or folder of the model to train, or `demo` for the demo's MiniLM. MODEL@REVISION names a revision.",
        ),
    ]
    output: Annotated[
        str,
        typer.Option(metavar="FOLDER|URI", help="Folder, or hf://USER/NAME on the Hub, to write the classifier to."),
    ]
    data: Annotated[
        str | None,
        typer.Option(
            metavar="PATH",
            help="File, folder, glob or URL of labelled texts: Parquet, JSON Lines or CSV.",
            rich_help_panel=_DATA,
        ),
    ] = None
    label_with: Annotated[
        str | None,
        typer.Option(
            metavar="RUN|URI",
            help="Instead of --data: a published run, or its output. Its texts are learned with its labels or scores.",
            rich_help_panel=_DATA,
        ),
    ] = None
    text_column: Annotated[
        str | None,
        typer.Option(
            metavar="NAME,…",
            help="Column with the texts, or several, joined by a blank line. Default: text, or what the run has scored.",
            rich_help_panel=_DATA,
        ),
    ] = None
    label_column: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Column with the labels. Default: label, or what the run has added. Of a run of several models, it says which.",
            rich_help_panel=_DATA,
        ),
    ] = None
    min_label_score: Annotated[
        float | None,
        typer.Option(help="With --label-with: leave out rows whose label has a lower score.", rich_help_panel=_DATA),
    ] = None
    task: Annotated[
        TrainTask,
        typer.Option(
            help="What the labels are. auto: numbers are a regression, texts are classes.", rich_help_panel=_DATA
        ),
    ] = "auto"
    class_weights: Annotated[
        ClassWeights,
        typer.Option(help="balanced: each class counts alike, however many rows it has.", rich_help_panel=_DATA),
    ] = "none"
    max_tokens: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="Tokens to read of a text. Default: as many as the model takes.",
            rich_help_panel=_DATA,
        ),
    ] = None
    validation: Annotated[
        str | None,
        typer.Option(
            metavar="PATH",
            help="Files with the rows to measure on, in the same columns, instead of --held-out.",
            rich_help_panel=_MEASURE,
        ),
    ] = None
    held_out: Annotated[
        float, typer.Option(min=0.01, max=0.9, help="Share of the rows to measure on.", rich_help_panel=_MEASURE)
    ] = 0.2
    seed: Annotated[int, typer.Option(min=0, help="Chooses the held-out rows.", rich_help_panel=_MEASURE)] = 0
    threshold: Annotated[
        float | None,
        typer.Option(
            help="Score of a regression from which a row is kept. It is stored with the model, and runs use it. "
            "Default: the middle of the labels' range.",
            rich_help_panel=_MEASURE,
        ),
    ] = None
    full: Annotated[
        bool,
        typer.Option(
            "--full/--freeze",
            help="Train all weights, instead of the last layer only.",
            rich_help_panel=_FULL,
        ),
    ] = False
    epochs: Annotated[
        float, typer.Option(min=0.001, help="How often to go through the rows.", rich_help_panel=_FULL)
    ] = _DEFAULTS.epochs
    learning_rate: Annotated[
        float, typer.Option(help="The highest; it grows from 0, then falls to 0.", rich_help_panel=_FULL)
    ] = _DEFAULTS.learning_rate
    batch_rows: Annotated[
        int,
        typer.Option(
            min=1,
            help="Rows of a batch; under torchrun, of each GPU.",
            rich_help_panel=_FULL,
        ),
    ] = _DEFAULTS.batch_rows
    accumulate: Annotated[
        int,
        typer.Option(
            min=1,
            metavar="BATCHES",
            help="Batches of a step. 4 with --batch-rows 8 train as --batch-rows 32, in less memory.",
            rich_help_panel=_FULL,
        ),
    ] = _DEFAULTS.accumulation_steps
    patience: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="CHECKPOINTS",
            help="End early after this many checkpoints without a lower loss on the held-out rows.",
            rich_help_panel=_FULL,
        ),
    ] = None
    checkpoint_steps: Annotated[
        int, typer.Option(min=1, help="Steps between two checkpoints.", rich_help_panel=_FULL)
    ] = _DEFAULTS.checkpoint_steps
    checkpoints: Annotated[
        str | None,
        typer.Option(
            metavar="FOLDER",
            help="Folder of the checkpoints. They are deleted at the end. Default: beside the output, or in the working "
            "directory if the output is on the Hub.",
            rich_help_panel=_FULL,
        ),
    ] = None
    loader_processes: Annotated[
        int, typer.Option(min=0, help="Processes that prepare batches.", rich_help_panel=_FULL)
    ] = 0
    dtype: Annotated[TrainDtype, typer.Option(help="Number format. auto: 16 bits if the device is faster with it.")] = (
        "auto"
    )

    @property
    def spec(self) -> TrainSpec:
        return TrainSpec(
            data_uri=self.data,
            label_with=self.label_with,
            text_column=self.text_column,
            label_column=self.label_column,
            min_label_score=self.min_label_score,
            base_model=self.base_model,
            output_uri=self.output,
            task=self.task,
            class_weights=self.class_weights,
            full=self._all_weights if self.full else None,
            dtype=self.dtype,
            max_tokens=self.max_tokens,
            threshold=self.threshold,
            validation_uri=self.validation,
            held_out_share=self.held_out,
            seed=self.seed,
        )

    @property
    def checkpoint_folder(self) -> Path | None:
        """Raises UsageError for a URI, since a training writes checkpoints to a folder only."""
        if self.checkpoints and "://" in self.checkpoints:
            raise UsageError(f"Checkpoints are written to a folder, and --checkpoints is {self.checkpoints}.")
        return Path(self.checkpoints) if self.checkpoints else None

    @property
    def _all_weights(self) -> FullTraining:
        return FullTraining(
            epochs=self.epochs,
            learning_rate=self.learning_rate,
            batch_rows=self.batch_rows,
            accumulation_steps=self.accumulate,
            checkpoint_steps=self.checkpoint_steps,
            patience=self.patience,
        )


with_train_options = with_options_of(TrainOptions)
