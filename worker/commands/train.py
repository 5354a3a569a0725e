"""Train a classifier."""

from pathlib import Path
from typing import Annotated

import typer

from fleet.command_line import print_json, print_table, say
from fleet.defaults import DEFAULT_TEXT_COLUMN
from fleet.training import ClassWeights, FullTraining, TrainDtype, TrainSpec, TrainTask
from worker.commands.arguments import Device, Revision

commands = typer.Typer()
_DATA, _MEASURE, _FULL = "What to learn from", "What to measure", "With --full"
_DEFAULTS = FullTraining()
_STOPPED = 130  # exit code, as of an interrupted `producer run`


@commands.command(
    epilog="Example: worker train --data labelled.parquet --base-model ./all-MiniLM-L6-v2 --output ./my-classifier"
)
def train(
    data: Annotated[str, typer.Option(metavar="FILE", help="Parquet file with labelled texts.", rich_help_panel=_DATA)],
    base_model: Annotated[
        str,
        typer.Option(
            metavar="MODEL", help="Hub name or folder of the model to train, or `demo` for the demo's MiniLM."
        ),
    ],
    output: Annotated[str, typer.Option(metavar="FOLDER", help="Folder to write the classifier to.")],
    text_column: Annotated[
        str, typer.Option(metavar="NAME", help="Column with the texts.", rich_help_panel=_DATA)
    ] = DEFAULT_TEXT_COLUMN,
    label_column: Annotated[
        str, typer.Option(metavar="NAME", help="Column with the labels.", rich_help_panel=_DATA)
    ] = "label",
    task: Annotated[
        TrainTask,
        typer.Option(
            help="What the labels are. auto: numbers are a regression, texts are classes.", rich_help_panel=_DATA
        ),
    ] = "auto",
    class_weights: Annotated[
        ClassWeights,
        typer.Option(help="balanced: each class counts alike, however many rows it has.", rich_help_panel=_DATA),
    ] = "none",
    max_tokens: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="Tokens to read of a text. Default: as many as the model takes.",
            rich_help_panel=_DATA,
        ),
    ] = None,
    validation: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Parquet file with the rows to measure on, instead of --held-out.",
            rich_help_panel=_MEASURE,
        ),
    ] = None,
    held_out: Annotated[
        float, typer.Option(min=0.01, max=0.9, help="Share of the rows to measure on.", rich_help_panel=_MEASURE)
    ] = 0.2,
    seed: Annotated[int, typer.Option(min=0, help="Chooses the held-out rows.", rich_help_panel=_MEASURE)] = 0,
    threshold: Annotated[
        float, typer.Option(help="Score of a regression from which a row counts as kept.", rich_help_panel=_MEASURE)
    ] = 3.0,
    full: Annotated[
        bool,
        typer.Option(
            "--full/--freeze",
            help="Train all weights, instead of the last layer only.",
            rich_help_panel=_FULL,
        ),
    ] = False,
    epochs: Annotated[
        float, typer.Option(min=0.001, help="How often to go through the rows.", rich_help_panel=_FULL)
    ] = _DEFAULTS.epochs,
    learning_rate: Annotated[
        float, typer.Option(help="The highest; it grows from 0, then falls to 0.", rich_help_panel=_FULL)
    ] = _DEFAULTS.learning_rate,
    warmup: Annotated[
        float,
        typer.Option(min=0.0, max=0.99, help="Share of the steps in which the rate grows.", rich_help_panel=_FULL),
    ] = _DEFAULTS.warmup_share,
    weight_decay: Annotated[
        float, typer.Option(min=0.0, help="Of AdamW.", rich_help_panel=_FULL)
    ] = _DEFAULTS.weight_decay,
    batch_rows: Annotated[
        int, typer.Option(min=1, help="Rows of a batch, on each GPU.", rich_help_panel=_FULL)
    ] = _DEFAULTS.batch_rows,
    accumulate: Annotated[
        int,
        typer.Option(
            min=1,
            metavar="BATCHES",
            help="Batches of a step. 4 with --batch-rows 8 train as --batch-rows 32, in less memory.",
            rich_help_panel=_FULL,
        ),
    ] = _DEFAULTS.accumulation_steps,
    patience: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="CHECKPOINTS",
            help="End early after this many checkpoints without a lower loss on the held-out rows.",
            rich_help_panel=_FULL,
        ),
    ] = None,
    checkpoint_steps: Annotated[
        int, typer.Option(min=1, help="Steps between two checkpoints.", rich_help_panel=_FULL)
    ] = _DEFAULTS.checkpoint_steps,
    checkpoints: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Folder of the checkpoints. It is deleted at the end. Default: beside the output.",
            rich_help_panel=_FULL,
        ),
    ] = None,
    resume: Annotated[
        bool,
        typer.Option("--resume/--no-resume", help="Go on after the last checkpoint.", rich_help_panel=_FULL),
    ] = True,
    loader_processes: Annotated[
        int, typer.Option(min=0, help="Processes that prepare batches.", rich_help_panel=_FULL)
    ] = 0,
    revision: Revision = None,
    dtype: Annotated[
        TrainDtype, typer.Option(help="Number format. auto: 16 bits if the device is faster with it.")
    ] = "auto",
    device: Device = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print all figures as JSON.")] = False,
) -> None:
    """Train a classifier on labelled texts, and save it as a model folder.

    The encoder is frozen, as for fineweb-edu-classifier: each text is embedded once, and the last layer is fitted to that.
    With --full, all weights are trained. SIGTERM and Ctrl-C save a checkpoint; the same command again goes on after it.
    On several GPUs: `torchrun --nproc-per-node N -m worker train …`.

    Prints how well the held-out rows are predicted.
    """
    from worker.service.logs import quieten_model_libraries

    quieten_model_libraries()
    from worker.training.installed import check_installed

    check_installed()
    from worker.training.place import TrainPlace
    from worker.training.report import report_table
    from worker.training.stop import TrainingStopped
    from worker.training.train import train as train_model

    all_weights = FullTraining(
        epochs=epochs,
        learning_rate=learning_rate,
        batch_rows=batch_rows,
        accumulation_steps=accumulate,
        weight_decay=weight_decay,
        warmup_share=warmup,
        checkpoint_steps=checkpoint_steps,
        patience=patience,
    )
    spec = TrainSpec(
        data_uri=data,
        text_column=text_column,
        label_column=label_column,
        base_model=base_model,
        revision=revision,
        output_uri=output,
        task=task,
        class_weights=class_weights,
        dtype=dtype,
        max_tokens=max_tokens,
        threshold=threshold,
        validation_uri=validation,
        held_out_share=held_out,
        seed=seed,
        full=all_weights if full else None,
    )
    place = TrainPlace(
        device=device or "auto", checkpoints=checkpoints, resume=resume, loader_processes=loader_processes
    )
    try:
        report = train_model(spec, place, tell=say)
    except TrainingStopped as stop:
        say(str(stop))
        raise typer.Exit(_STOPPED) from stop
    if report is None:
        return
    if as_json:
        print_json(report.as_json())
    else:
        print_table(report_table(report))
