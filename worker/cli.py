"""The command `worker`. Options become environment variables, because the spawned child reads its settings from them."""

import dataclasses
import json
import os
from pathlib import Path
from typing import Annotated

import typer

from fleet import choices
from fleet.command_line import QUIET, new_command_line, print_table, run_command_line

cli = new_command_line("worker", help="The data side of shardsift: a worker owns one GPU and scores shards on it.")

ModelName = Annotated[
    str | None, typer.Option(help="Hub name or folder. Default: SHARDSIFT_MODEL, else fineweb-edu-classifier.")
]
ModelNames = Annotated[
    list[str] | None,
    typer.Option(
        "--model",
        metavar="MODEL",
        help="Serve only runs with this model: a Hub name or folder. Give all models of a run with several. "
        "MODEL@REVISION names a revision. Default: SHARDSIFT_MODEL, else what open runs need.",
    ),
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
Threads = Annotated[
    int | None,
    typer.Option(help="CPU threads for the model. 0: torch decides. Give workers that share a CPU their share."),
]
Backend = Annotated[
    choices.Backend | None,
    typer.Option(help="Whether to pad the texts of a batch to one length, or pack them without padding."),
]
Compile = Annotated[
    bool | None,
    typer.Option("--compile", help="Use torch.compile: starts more slowly, then scores more rows per second."),
]
LogLevel = Annotated[choices.LogLevel, typer.Option(case_sensitive=False, help="Lowest level to log.")]


@cli.command(epilog="Example: REDIS_URL=redis://10.0.0.5:6379/0 REDIS_PASSWORD_FILE=./redis_password worker start")
def start(
    models: ModelNames = None,
    revision: Revision = None,
    dtype: Annotated[
        choices.Dtype | None,
        typer.Option(help="Serve only runs with this --dtype. Default: runs with any, each in its own."),
    ] = None,
    scorer: Annotated[
        str | None,
        typer.Option(metavar="KIND", help="Kind of scorer that loads the model. Default: sequence-classifier."),
    ] = None,
    gpus: Annotated[
        str,
        typer.Option(
            metavar="all|N|0,2", help="GPUs to use: all, the first N, or those with these numbers. 0: the CPU."
        ),
    ] = "all",
    workers: Annotated[
        int | None,
        typer.Option(min=1, help="Workers, which share the GPUs or the cores. Default: one per GPU; on a CPU one."),
    ] = None,
    name: Annotated[
        str | None,
        typer.Option(help="Name of the worker, shown as NAME@host; of several, how it begins. Default: gpu0, gpu1, …"),
    ] = None,
    device: Device = None,
    threads: Threads = None,
    max_batch_tokens: Annotated[
        int | None,
        typer.Option(help="Tokens per batch. Default: the number that `worker tune` found best."),
    ] = None,
    backend: Backend = None,
    compile: Compile = None,
    spot_notice: Annotated[
        choices.SpotCloud | None,
        typer.Option(help="Watch for this cloud's notice that it reclaims the spot machine, and stop in time."),
    ] = None,
    exit_when_idle: Annotated[
        str | None,
        typer.Option(
            metavar="TIME", help="Exit after the fleet has had nothing to do here for this long, such as 10m."
        ),
    ] = None,
    on_idle: Annotated[
        str | None,
        typer.Option(metavar="COMMAND", help="Shell command to run after --exit-when-idle, such as 'sudo poweroff'."),
    ] = None,
    log_level: LogLevel = "INFO",
) -> None:
    """Run the workers of this machine, one per GPU, until stopped.

    Each serves what open runs need; with --model, only runs with that model. A worker that dies is started again. SIGTERM
    or Ctrl-C stops all at their next batch. Their shards go back to the queue.
    """
    _into_environment(
        model=json.dumps(models) if models else None,
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
    from fleet.settings import read_settings
    from worker.supervisor.start import StartOptions
    from worker.supervisor.start import start as start_workers

    options = StartOptions(
        gpus=gpus,
        workers=workers,
        name=name,
        exit_when_idle=exit_when_idle,
        on_idle=on_idle,
        log_level=log_level,
    )
    raise typer.Exit(start_workers(read_settings(), options))


@cli.command(hidden=True)
def serve(
    name: Annotated[str, typer.Option(help="Name of this worker. Must be unique on a machine.")] = "worker",
    log_level: LogLevel = "INFO",
) -> None:
    """Run one worker on one device. `worker start` runs it for each; the settings in the environment say what it loads."""
    raise typer.Exit(_run_celery(["worker", "--hostname", f"{name}@%h", "--loglevel", log_level, *QUIET]))


def _into_environment(**settings: object) -> None:
    """Set the environment variable of each option that was given."""
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
        ),
    ] = None,
    text_column: Annotated[
        str, typer.Option(metavar="NAME,…", help="Column that holds the texts. Several are joined as in a run.")
    ] = "text",
    labels: Annotated[
        str | None,
        typer.Option(
            metavar="LABEL,…", help="Try zero-shot classification with these labels, as --task zero-shot does in a run."
        ),
    ] = None,
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

    Prints a line for each setting. The best one is the smallest that is within 2 % of the fastest.
    """
    from fleet.sequence_classifier import resolve_classifier
    from fleet.settings import read_settings
    from worker.service.logs import quieten_model_libraries

    _into_environment(
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
        rows=rows,
        labels=tuple(labels.split(",")) if labels else (),
        budgets=parse_budgets(budgets) if budgets is not None else None,
        repeats=repeats,
        reference=reference,
        chart=output if chart else None,
    )
    tuning = tune_model(settings, resolved, options, lambda line: typer.echo(line, err=True))
    print_table(tuning_table(tuning))
    for line in tuning_lines(tuning):
        typer.echo(line)


@cli.command(epilog="Example: worker doctor --model ./my-classifier")
def doctor(
    models: Annotated[
        list[str] | None,
        typer.Option(
            "--model",
            metavar="MODEL",
            help="Model to try: a Hub name or folder. Give all models of a run with several. MODEL@REVISION names a revision. "
            "Default: SHARDSIFT_MODEL, else what the oldest open run needs.",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON on stdout.")] = False,
) -> None:
    """Check this machine for a worker: GPU, driver and torch, cores, disks, Redis, the Hub, and that the model loads.

    Prints a line for each check: ok, warning or wrong, and how to mend it. Checks that depend on a failed one are left out.
    Exits with 0 if nothing is wrong, 1 if something is, and 2 for wrong options.
    """
    _into_environment(model=json.dumps(models) if models else None)
    from fleet.doctor.report import report
    from fleet.settings import read_settings
    from worker.doctor.checks import worker_checks

    report(worker_checks(read_settings()), as_json=as_json)


@cli.command(epilog="Example: worker train labelled.parquet --encoder ./all-MiniLM-L6-v2 --output ./my-classifier")
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


def main() -> None:
    run_command_line("worker", cli)


if __name__ == "__main__":
    main()
