"""The options of a training, for `worker train` and for Python. Imports no torch."""

import math
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Annotated, Literal, Required, TypedDict

import typer

from shardsift.fleet.errors import UsageError
from shardsift.fleet.process.keywords import Location, Names
from shardsift.fleet.process.wording import is_url, local_path
from shardsift.fleet.run.choices import Dtype

TrainTask = Literal["auto", "regression", "classification"]

DEMO_ENCODER = "demo"  # the name of the demo's small encoder as a base model
DEMO_ENCODER_ON_HUB = "sentence-transformers/all-MiniLM-L6-v2"
NOT_OF_THE_WEIGHTS = ("checkpoints", "loader_processes")  # options that do not affect the weights
_OF_FULL = (
    "epochs",
    "learning_rate",
    "batch_rows",
    "accumulate",
    "checkpoint_steps",
    "checkpoints",
    "loader_processes",
)
_data = partial(typer.Option, rich_help_panel="What to learn from")
_measure = partial(typer.Option, rich_help_panel="What to measure")
_full = partial(typer.Option, rich_help_panel="With --full")


@dataclass(frozen=True, kw_only=True)
class TrainOptions:
    """The user's options. With equal options, files, device and versions, the classifier is the same.

    The annotations define the command's options.
    """

    base_model: Annotated[
        str,
        typer.Option(
            metavar="MODEL",
            help="Hub name or folder of the model to train, or `demo` for the demo's MiniLM.",
        ),
    ]
    output: Annotated[
        str,
        typer.Option(metavar="FOLDER|URI", help="Folder, or hf://USER/NAME, for the classifier."),
    ]
    data: Annotated[
        str | None,
        _data(metavar="PATH", help="Labelled texts, in the formats of a run's input."),
    ] = None
    label_with: Annotated[
        str | None,
        _data(
            metavar="URI",
            help="Instead of --data: the output of a published run.",
        ),
    ] = None
    text_column: Annotated[
        str | None,
        _data(
            metavar="NAME,…",
            help="Column with the texts, or several. Default: text, or the text that the run scored.",
        ),
    ] = None
    label_column: Annotated[
        str | None,
        _data(
            metavar="NAME",
            help="Column with the labels. Default: label, or the label or score that the run added.",
        ),
    ] = None
    task: Annotated[TrainTask, _data(help="Kind of labels. auto: numbers are a regression, texts are classes.")] = (
        "auto"
    )
    max_tokens: Annotated[
        int | None, _data(min=1, metavar="N", help="Tokens to read of a text. Default: as many as the model takes.")
    ] = None
    validation: Annotated[
        str | None,
        _measure(metavar="PATH", help="Files with the rows to measure on, instead of --held-out."),
    ] = None
    held_out: Annotated[float, _measure(min=0.01, max=0.9, help="Share of the rows to measure on.")] = 0.2
    seed: Annotated[
        int,
        _measure(
            min=0, help="Seed of the held-out rows and, with --full, of the new last layer and the order of rows."
        ),
    ] = 0
    threshold: Annotated[
        float | None,
        _measure(help="Lowest score of a row to keep, for a regression. Default: the middle of the labels' range."),
    ] = None
    full: Annotated[bool, _full("--full/--freeze", help="Train all weights, instead of the last layer only.")] = False
    epochs: Annotated[float, _full(min=0.001, help="Passes over the rows.")] = 3.0
    learning_rate: Annotated[float, _full(help="Peak learning rate.")] = 5e-5
    batch_rows: Annotated[int, _full(min=1, help="Rows per batch; under torchrun, per GPU.")] = 32
    accumulate: Annotated[
        int,
        _full(
            min=1,
            metavar="BATCHES",
            help="Gradient accumulation steps: batches per update.",
        ),
    ] = 1
    checkpoint_steps: Annotated[int, _full(min=1, help="Steps between two checkpoints.")] = 500
    checkpoints: Annotated[
        str | None,
        _full(
            metavar="FOLDER",
            help="Folder of the checkpoints, which are deleted at the end. Default: beside the output.",
        ),
    ] = None
    loader_processes: Annotated[int, _full(min=0, help="Processes that prepare batches.")] = 0
    dtype: Annotated[Dtype, typer.Option(help="Number format. auto: 16 bits if the device is faster with it.")] = "auto"

    def check(self) -> None:
        """Raise UsageError for options that do not go together, and for a learning rate that is not above 0."""
        if not 0 < self.learning_rate < math.inf:
            raise UsageError(f"--learning-rate is a number above 0, like 5e-5, not {self.learning_rate:g}.")
        idle = [
            field for field in fields(self) if field.name in _OF_FULL and getattr(self, field.name) != field.default
        ]
        if idle and not self.full:
            option = f"--{idle[0].name.replace('_', '-')}"
            raise UsageError(f"{option} is for training all weights. Add --full, or leave it out.")

    @property
    def checkpoint_folder(self) -> Path:
        """The folder of checkpoints. Default: beside the output; for an output on the Hub, in the current folder.

        Raises UsageError for a URI, because checkpoints can only be written to a folder.
        """
        if is_url(self.checkpoints or ""):
            raise UsageError(f"Checkpoints are written to a folder, and --checkpoints is {self.checkpoints}.")
        if self.checkpoints:
            return local_path(self.checkpoints)
        beside = Path(PurePosixPath(self.output).name) if is_url(self.output) else local_path(self.output)
        return beside.with_name(f"{beside.name}.checkpoints").absolute()

    @property
    def command(self) -> list[str]:
        """The command of this training, except for default values and options that do not affect the weights."""
        command = ["worker", "train"]
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name not in NOT_OF_THE_WEIGHTS and value != field.default:
                option = f"--{field.name.replace('_', '-')}"
                command += [option] if value is True else [option, str(value)]
        return command


class TrainKeywords(TypedDict, total=False):
    base_model: Required[Location]
    output: Required[Location]
    data: Location | None
    label_with: Location | None
    text_column: Names | None
    label_column: str | None
    task: TrainTask
    max_tokens: int | None
    validation: Location | None
    held_out: float
    seed: int
    threshold: float | None
    full: bool
    epochs: float
    learning_rate: float
    batch_rows: int
    accumulate: int
    checkpoint_steps: int
    checkpoints: Location | None
    loader_processes: int
    dtype: Dtype
