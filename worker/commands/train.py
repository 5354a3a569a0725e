"""Train a classifier."""

from typing import Annotated

import typer

from fleet.command_line import print_json, print_table, say
from fleet.defaults import DEFAULT_TEXT_COLUMN
from fleet.training import ClassWeights, TrainDtype, TrainSpec, TrainTask
from worker.commands.arguments import Device, Revision

commands = typer.Typer()
_DATA, _MEASURE = "What to learn from", "What to measure"


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
    revision: Revision = None,
    dtype: Annotated[
        TrainDtype, typer.Option(help="Number format. auto: 16 bits if the device is faster with it.")
    ] = "auto",
    device: Device = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print all figures as JSON.")] = False,
) -> None:
    """Train a classifier on labelled texts, and save it as a model folder.

    The encoder is frozen, as for fineweb-edu-classifier: each text is embedded once, and the last layer is fitted to that.

    Prints how well the held-out rows are predicted.
    """
    from worker.service.logs import quieten_model_libraries

    quieten_model_libraries()
    from worker.training.report import report_table
    from worker.training.train import train as train_model

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
    )
    report = train_model(spec, device=device or "auto", tell=say)
    if as_json:
        print_json(report.as_json())
    else:
        print_table(report_table(report))
