"""Fit a classifier."""

import dataclasses
import json
from pathlib import Path
from typing import Annotated

import typer

commands = typer.Typer()


@commands.command(epilog="Example: worker train labelled.parquet --encoder ./all-MiniLM-L6-v2 --output ./my-classifier")
def train(
    texts: Annotated[Path, typer.Argument(help="Parquet file with the columns `text` and `label` (a number).")],
    encoder: Annotated[str, typer.Option(help="Hub name or folder of the encoder, or `demo` for the demo's MiniLM.")],
    output: Annotated[Path, typer.Option(help="Folder to write the classifier to.")],
    max_tokens: Annotated[int, typer.Option(help="How many tokens of a text to read.")] = 512,
) -> None:
    """Fit a regression head on a frozen encoder, as for fineweb-edu-classifier, and save the classifier.

    Prints a JSON report with the accuracy on the 20 % of the rows that were held out.
    """
    from worker.service.logs import quieten_model_libraries

    quieten_model_libraries()
    from worker.training.demo_encoder import DEMO_ENCODER, verified_demo_encoder
    from worker.training.head import fit_head
    from worker.training.labelled import read_labelled

    labelled, labels = read_labelled(texts)
    source = verified_demo_encoder() if encoder == DEMO_ENCODER else encoder
    report = fit_head(source, labelled, labels, output, max_tokens=max_tokens)
    typer.echo(json.dumps(dataclasses.asdict(report)))
