"""Find the fastest settings for a model on this device."""

from typing import Annotated

import typer

from fleet.process.command_line import Commands, print_table, say, with_options_of
from fleet.run import choices
from fleet.run.options import MODEL_PANEL, split_at_commas
from worker.commands.start import Device, into_environment
from worker.tuning.options import TuneOptions

commands = Commands()

ModelName = Annotated[
    str | None,
    typer.Option(
        "--model",
        metavar="MODEL",
        help="Hub name or folder. Default: SHARDSIFT_MODEL, else fineweb-edu-classifier.",
        rich_help_panel=MODEL_PANEL,
    ),
]


@commands.command(
    epilog="Example: worker tune --model ./my-classifier --input './shards/*.parquet' --output ./tuning.png"
)
@with_options_of(TuneOptions, labels=split_at_commas)
def tune(
    options: TuneOptions,
    model: ModelName = None,
    dtype: Annotated[
        choices.Dtype | None, typer.Option(help="Number format. Default: SHARDSIFT_DTYPE, else auto.")
    ] = None,
    device: Device = None,
) -> None:
    """Find the fastest batch size for a model on this device. `worker start` then uses it.

    Give it the options of the run that say what is read. The best batch size is the smallest within 2 % of the fastest.
    """
    from fleet.process.settings import read_settings
    from worker.scoring.quiet import quieten_imports
    from worker.tuning.options import scoring_to_tune

    into_environment(model=model, dtype=dtype, device=device)
    settings = read_settings()
    scoring = scoring_to_tune(settings, options)  # before torch, which takes seconds to load
    quieten_imports()
    from fleet.errors import UsageError
    from worker.scoring import ModelError
    from worker.tuning.report import draw_chart, tuning_lines, tuning_table
    from worker.tuning.tune import tune as tune_model

    try:
        tuning = tune_model(settings, scoring, options, say)
    except ModelError as error:
        raise UsageError(str(error)) from error
    if options.chart_file:
        draw_chart(options.chart_file, tuning)
    print_table(tuning_table(tuning))
    for line in tuning_lines(tuning):
        typer.echo(line)
