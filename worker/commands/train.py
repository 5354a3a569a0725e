"""Train a classifier."""

from dataclasses import replace
from typing import Annotated

import typer

from fleet.errors import UsageError
from fleet.process.command_line import Commands, print_json, print_table, say
from fleet.process.wording import is_place
from worker.commands.start import Device
from worker.training.options import TrainOptions, check_installed, with_train_options

commands = Commands()
_STOPPED = 130  # exit code, as of an interrupted `producer run`


@commands.command(
    epilog="Example: worker train --data labelled.parquet --base-model ./all-MiniLM-L6-v2 --output ./my-classifier"
)
@with_train_options
def train(
    options: TrainOptions,
    resume: Annotated[
        bool,
        typer.Option("--resume/--no-resume", help="Go on after the last checkpoint.", rich_help_panel="With --full"),
    ] = True,
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
    check_installed()
    from fleet.errors import Stopped
    from fleet.process.settings import read_settings
    from worker.training.card import next_step
    from worker.training.report import report_table
    from worker.training.train import train as train_model

    try:
        report = train_model(
            with_run_found(options), device=read_settings(device=device).device, resume=resume, tell=say
        )
    except Stopped as stop:
        say(str(stop))
        raise typer.Exit(_STOPPED) from stop
    if report is None:
        return
    if as_json:
        print_json(report.as_json())
    else:
        print_table(report_table(report))
    say(next_step(report))


def with_run_found(options: TrainOptions) -> TrainOptions:
    """The options with the output of the run whose labels are learned, if that is named by its id.

    Raises UsageError if the ledger has no such run, or it is not published yet.
    """
    if options.label_with is None or is_place(options.label_with):
        return options
    return replace(options, label_with=_output_of(options.label_with))


def _output_of(target: str) -> str:
    from fleet.ledger import Ledger
    from fleet.process.settings import read_settings

    settings = read_settings()
    if settings.redis_url is None:
        raise UsageError(
            f"There is no folder {target!r} here, and run ids are known to the fleet's Redis: set REDIS_URL, or name the "
            "output of the run."
        )
    ledger = Ledger.connect(settings)
    try:
        spec = ledger.spec(target)
        if ledger.publication(target) is None:
            raise UsageError(f"Run {target} is not published yet: producer status {target}")
        return spec.output_uri
    finally:
        ledger.redis.close()
