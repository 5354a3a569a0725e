"""The command `worker`. Options become settings of the environment, which the spawned child reads too."""

import dataclasses
import json
import os
from pathlib import Path
from typing import Annotated

import typer

from fleet import choices
from fleet.command_line import QUIET, new_command_line, print_table, run_command_line

cli = new_command_line("worker", help="The data side of shardsift: one process that owns one GPU and scores shards.")

ModelName = Annotated[
    str | None, typer.Option(help="Hub name or folder. Default: SHARDSIFT_MODEL, else fineweb-edu-classifier.")
]
Revision = Annotated[str | None, typer.Option(help="Branch, tag or commit of the model.")]


def _checked_device(device: str | None) -> str | None:
    if device is not None and not choices.is_device(device):
        raise typer.BadParameter(f"{device!r} is not one of {choices.DEVICES}.")
    return device


Device = Annotated[
    str | None,
    typer.Option(
        metavar="DEVICE",
        callback=_checked_device,
        help=f"Where to score: {choices.DEVICES}. Default: SHARDSIFT_DEVICE, else auto: a GPU if there is one.",
    ),
]
Threads = Annotated[int | None, typer.Option(help="CPU threads of the model. 0: torch chooses.")]
Backend = Annotated[choices.Backend | None, typer.Option(help="Whether the texts of a batch are padded to one length.")]
Compile = Annotated[
    bool | None, typer.Option("--compile", help="Use torch.compile: a slow start, then more rows per second.")
]


@cli.command(
    epilog="Example: CUDA_VISIBLE_DEVICES=0 REDIS_URL=redis://10.0.0.5:6379/0 REDIS_PASSWORD_FILE=./redis_password worker start"
)
def start(
    model: ModelName = None,
    revision: Revision = None,
    dtype: Annotated[
        choices.Dtype | None, typer.Option(help="Precision of the model. The worker serves runs of the same --dtype.")
    ] = None,
    scorer: Annotated[
        str | None,
        typer.Option(metavar="KIND", help="Kind of scorer that loads the model. Default: sequence-classifier."),
    ] = None,
    name: Annotated[
        str, typer.Option(help="Name of this worker, before the @host. Each worker on a machine needs its own.")
    ] = "worker",
    device: Device = None,
    threads: Threads = None,
    max_batch_tokens: Annotated[
        int | None,
        typer.Option(help="Tokens that go through the model at once. Default: what `worker tune` found best."),
    ] = None,
    backend: Backend = None,
    compile: Compile = None,
    spot_notice: Annotated[
        choices.SpotCloud | None,
        typer.Option(help="Stop when this cloud gives notice that it takes the spot machine back."),
    ] = None,
    log_level: Annotated[
        choices.LogLevel, typer.Option(case_sensitive=False, help="Log this level and above.")
    ] = "INFO",
) -> None:
    """Load a model, then score shards until told to stop.

    SIGTERM or Ctrl-C stops it at the next batch: its shard goes back to the queue, and it exits.
    """
    _into_environment(
        model=model,
        model_revision=revision,
        scorer=scorer,
        dtype=dtype,
        device=device,
        threads=threads,
        max_batch_tokens=max_batch_tokens,
        backend=backend,
        compile=compile,
        spot_notice=spot_notice,
    )
    raise typer.Exit(_run_celery(["worker", "--hostname", f"{name}@%h", "--loglevel", log_level, *QUIET]))


def _into_environment(**settings: object) -> None:
    """Options that were given, into the environment."""
    given = {f"SHARDSIFT_{name.upper()}": str(value) for name, value in settings.items() if value is not None}
    os.environ.update(given)


def _run_celery(arguments: list[str]) -> int:
    from worker.app import app

    try:
        app.worker_main(arguments)
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else 0
    return 0


@cli.command(epilog="Example: worker tune --model ./my-classifier --input './shards/*.parquet' --output ./tuning.png")
def tune(
    model: ModelName = None,
    revision: Revision = None,
    dtype: Annotated[
        choices.Dtype | None, typer.Option(help="Precision of the model: the one that `worker start` will use.")
    ] = None,
    device: Device = None,
    threads: Threads = None,
    backend: Backend = None,
    compile: Compile = None,
    input_uri: Annotated[
        str | None,
        typer.Option(
            "--input", metavar="URI", help="Texts for the trial: Parquet, like `producer run`'s. Default: Python's own."
        ),
    ] = None,
    text_column: Annotated[str, typer.Option(metavar="NAME", help="Column with the texts.")] = "text",
    rows: Annotated[
        int | None, typer.Option(min=1, help="Texts, the input's first. Default: 64 on a CPU, 20,000 on a GPU.")
    ] = None,
    budgets: Annotated[
        str | None,
        typer.Option(
            metavar="TOKENS,…", help="What to try. Default: 512 to 8,192, on a GPU 8,192 to 262,144, doubling each."
        ),
    ] = None,
    repeats: Annotated[int, typer.Option(min=1, help="Turns of each setting; their median counts.")] = 3,
    reference: Annotated[
        bool,
        typer.Option("--reference/--no-reference", help="Try the plain pipeline too, at 5 to 768 rows a batch: slow."),
    ] = False,
    chart: Annotated[bool, typer.Option("--chart/--no-chart", help="Draw the curve, with matplotlib.")] = True,
    output: Annotated[Path, typer.Option(metavar="PNG", help="File for the curve.")] = Path("tuning.png"),
) -> None:
    """Find how many tokens at once are fastest for a model on this device; `worker start` then takes as many.

    Prints a line for each setting. The best is the smallest that is within 2 % of the fastest.
    """
    from fleet.settings import read_settings
    from worker.service.logs import quieten_model_libraries

    quieten_model_libraries()
    from worker.tuning.report import tuning_lines, tuning_table
    from worker.tuning.tune import TuneOptions, parse_budgets
    from worker.tuning.tune import tune as tune_model

    _into_environment(
        model=model,
        model_revision=revision,
        dtype=dtype,
        device=device,
        threads=threads,
        backend=backend,
        compile=compile,
    )
    options = TuneOptions(
        input_uri=input_uri,
        text_column=text_column,
        rows=rows,
        budgets=parse_budgets(budgets) if budgets is not None else None,
        repeats=repeats,
        reference=reference,
        chart=output if chart else None,
    )
    tuning = tune_model(read_settings(), options, lambda line: typer.echo(line, err=True))
    print_table(tuning_table(tuning))
    for line in tuning_lines(tuning):
        typer.echo(line)


@cli.command(epilog="Example: worker train labelled.parquet --encoder ./all-MiniLM-L6-v2 --output ./my-classifier")
def train(
    texts: Annotated[Path, typer.Argument(help="Parquet with the columns `text` and `label` (a number).")],
    encoder: Annotated[str, typer.Option(help="Hub name or folder of the encoder; `demo` is the demo's MiniLM.")],
    output: Annotated[Path, typer.Option(help="Folder for the classifier.")],
    max_tokens: Annotated[int, typer.Option(help="Tokens of a text that are looked at.")] = 512,
) -> None:
    """Fit a regression head on a frozen encoder, as fineweb-edu-classifier's was, and save the classifier.

    Prints a JSON report with the accuracy on the fifth of the rows that were held out.
    """
    import pyarrow.parquet as pq

    from worker.service.logs import quieten_model_libraries

    quieten_model_libraries()
    from worker.training.demo_encoder import DemoEncoderError, verified_demo_encoder
    from worker.training.head import HeadError, fit_head

    try:
        table = pq.read_table(texts, columns=["text", "label"])
        source = verified_demo_encoder() if encoder == "demo" else encoder
        report = fit_head(source, table["text"].to_pylist(), table["label"].to_numpy(), output, max_tokens=max_tokens)
    except (HeadError, DemoEncoderError, OSError, ValueError) as error:
        typer.echo(f"worker: {error}", err=True)
        raise typer.Exit(2) from error
    typer.echo(json.dumps(dataclasses.asdict(report)))


def main() -> None:
    run_command_line("worker", cli)


if __name__ == "__main__":
    main()
