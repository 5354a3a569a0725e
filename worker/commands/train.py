"""Train a classifier."""

from typing import Annotated

import typer

from fleet.process.command_line import Commands, print_json, say, with_options_of
from worker.commands.start import Device
from worker.training.options import TrainOptions

commands = Commands()
_STOPPED = 130  # exit code, as of an interrupted `producer run`


@commands.command(
    epilog="Example: worker train --data labelled.parquet --base-model ./all-MiniLM-L6-v2 --output ./my-classifier"
)
@with_options_of(TrainOptions)
def train(
    options: TrainOptions,
    device: Device = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print all figures as JSON.")] = False,
) -> None:
    """Train a classifier on labelled texts, and save it as a model folder.

    Fits the last layer, or with --full trains all weights, and prints how well held-out rows are predicted. With --full, the
    same command resumes after the last checkpoint. On several GPUs: `torchrun --nproc-per-node N -m worker train …`.
    """
    from worker.scoring.quiet import quieten_imports

    quieten_imports()
    from fleet.errors import Stopped
    from fleet.process.settings import read_settings
    from worker.training.report import next_step
    from worker.training.train import train as train_model

    try:
        report = train_model(options, device=read_settings(device=device).device, tell=say)
    except Stopped as stop:
        say(str(stop))
        raise typer.Exit(_STOPPED) from stop
    if report is None:
        return
    if as_json:
        print_json(report.as_json())
    else:
        typer.echo(str(report))
    say(next_step(report))
