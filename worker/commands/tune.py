"""Find the fastest settings for a model on this device."""

from pathlib import Path
from typing import Annotated

import typer

from fleet import choices
from fleet.command_line import print_table
from fleet.defaults import DEFAULT_TEXT_COLUMN
from fleet.text_options import (
    MODEL_PANEL,
    PANEL,
    HypothesisTemplate,
    MaxTokens,
    TextColumn,
    TextPairColumn,
    TextTemplate,
    Windows,
)
from fleet.zero_shot import HYPOTHESIS_TEMPLATE
from worker.commands.arguments import Backend, Compile, Device, Revision, Threads, into_environment

commands = typer.Typer()

ModelName = Annotated[
    str | None, typer.Option(help="Hub name or folder. Default: SHARDSIFT_MODEL, else fineweb-edu-classifier.")
]


@commands.command(
    epilog="Example: worker tune --model ./my-classifier --input './shards/*.parquet' --output ./tuning.png"
)
def tune(
    model: ModelName = None,
    revision: Revision = None,
    dtype: Annotated[
        choices.Dtype | None, typer.Option(help="Precision of the model. Use the same as for `worker start`.")
    ] = None,
    device: Device = None,
    threads: Threads = None,
    backend: Backend = None,
    compile: Compile = None,
    input_uri: Annotated[
        str | None,
        typer.Option(
            "--input",
            metavar="URI",
            help="File, folder or glob with texts to try, as for `producer run`. Default: texts that come with Python.",
            rich_help_panel=PANEL,
        ),
    ] = None,
    text_column: TextColumn = DEFAULT_TEXT_COLUMN,
    text_template: TextTemplate = None,
    text_pair_column: TextPairColumn = None,
    max_tokens: MaxTokens = None,
    windows: Windows = "head",
    no_recipe: Annotated[
        bool, typer.Option("--no-recipe", help="Leave out the model's recipe, which a run uses.", rich_help_panel=PANEL)
    ] = False,
    labels: Annotated[
        str | None,
        typer.Option(
            metavar="LABEL,…",
            help="Try zero-shot classification with these labels, as --task zero-shot does in a run.",
            rich_help_panel=MODEL_PANEL,
        ),
    ] = None,
    hypothesis_template: HypothesisTemplate = HYPOTHESIS_TEMPLATE,
    rows: Annotated[
        int | None, typer.Option(min=1, help="How many texts to try. Default: 64 on a CPU, 20,000 on a GPU.")
    ] = None,
    budgets: Annotated[
        str | None,
        typer.Option(
            metavar="TOKENS,…",
            help="Budgets to try. Default: 512 to 8,192 on a CPU, 8,192 to 262,144 on a GPU, each twice the one before.",
        ),
    ] = None,
    repeats: Annotated[int, typer.Option(min=1, help="How often to time each setting. The median counts.")] = 3,
    reference: Annotated[
        bool,
        typer.Option(
            "--reference/--no-reference", help="Also time the plain pipeline, at 5 to 768 rows per batch. Slow."
        ),
    ] = False,
    chart: Annotated[bool, typer.Option("--chart/--no-chart", help="Draw a chart with matplotlib.")] = True,
    output: Annotated[Path, typer.Option(metavar="PNG", help="File for the chart.")] = Path("tuning.png"),
) -> None:
    """Find the fastest batch size for a model on this device. `worker start` then uses it.

    What is read of a text, and how, are options as of `producer run`, so that the texts of the trial are as long as the run's.

    Prints a line for each setting. The best one is the smallest that is within 2 % of the fastest.
    """
    from fleet.sequence_classifier import resolve_classifier
    from fleet.settings import read_settings
    from worker.service.logs import quieten_model_libraries

    into_environment(
        model=model,
        model_revision=revision,
        dtype=dtype,
        device=device,
        threads=threads,
        backend=backend,
        compile=compile,
    )
    settings = read_settings()
    resolved = resolve_classifier(settings.model, settings.model_revision)  # before torch, which takes seconds to load
    quieten_model_libraries()
    from worker.tuning.report import tuning_lines, tuning_table
    from worker.tuning.tune import TuneOptions, parse_budgets
    from worker.tuning.tune import tune as tune_model

    options = TuneOptions(
        input_uri=input_uri,
        text_column=text_column,
        text_template=text_template,
        text_pair_column=text_pair_column,
        max_tokens=max_tokens,
        windows=windows,
        no_recipe=no_recipe,
        rows=rows,
        labels=tuple(labels.split(",")) if labels else (),
        budgets=parse_budgets(budgets) if budgets is not None else None,
        hypothesis_template=hypothesis_template,
        repeats=repeats,
        reference=reference,
        chart=output if chart else None,
    )
    tuning = tune_model(settings, resolved, options, lambda line: typer.echo(line, err=True))
    print_table(tuning_table(tuning))
    for line in tuning_lines(tuning):
        typer.echo(line)
