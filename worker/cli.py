"""The command `worker`. Each subcommand parses options, makes one call and prints a report.

A subcommand imports its libraries only when it runs, so `--help` answers at once.
"""

import json
import os
from typing import Annotated, Any

import typer

from shardsift.fleet.process.command_line import (
    QUIET,
    new_command_line,
    print_json,
    print_table,
    run_command_line,
    say,
)
from shardsift.fleet.process.keywords import with_options_of
from shardsift.fleet.process.settings import Settings, read_settings
from shardsift.fleet.run import choices
from shardsift.fleet.run.options import model_option, split_at_commas
from shardsift.worker.training.train_options import TrainOptions
from shardsift.worker.tuning.tune_options import TuneOptions

cli = new_command_line(
    "worker", help="The data side of shardsift: the workers of a machine, one per GPU, score shards on it."
)


def main() -> None:
    run_command_line("worker", cli)


# Options that several subcommands share.


def _checked_device(device: str | None) -> str | None:
    if device is not None and not choices.is_device(device):
        raise typer.BadParameter(f"{device!r} is not one of {choices.DEVICES}.")
    return device


def _setting(name: str, *names: str, also: str = "", **more: Any) -> Any:
    """Make an option that overrides a setting. Its help is the setting's description, followed by `also`."""
    described = (Settings.model_fields[name].description or "").replace("Unset:", "Default:")
    return typer.Option(*names, help=f"{described} {also}".strip(), **more)


Device = Annotated[str | None, _setting("device", metavar="DEVICE", callback=_checked_device)]


def _into_environment(**settings: object) -> None:
    """Set the environment variables of the given options: a worker's processes read their settings from these."""
    given = {f"SHARDSIFT_{name.upper()}": str(value) for name, value in settings.items() if value is not None}
    os.environ.update(given)


@cli.command(epilog="Example: REDIS_URL=redis://10.0.0.5:6379/0 REDIS_PASSWORD_FILE=./redis_password worker start")
def start(
    models: Annotated[list[str] | None, _setting("model", "--model", metavar="MODEL", also="May be repeated.")] = None,
    scorer: Annotated[str | None, _setting("scorer", metavar="KIND")] = None,
    workers: Annotated[
        int | None,
        typer.Option(min=1, help="Workers to start. Default: one per GPU, or one on a CPU."),
    ] = None,
    gpus_per_worker: Annotated[int | None, _setting("gpus_per_worker", min=1, metavar="N")] = None,
    sharding: Annotated[choices.WayToShard | None, _setting("sharding", "--sharding")] = None,
    name: Annotated[
        str | None,
        typer.Option(help="Name of the worker, or prefix of the names of several. Default: gpu0, gpu1, …"),
    ] = None,
    device: Device = None,
    threads: Annotated[int | None, _setting("threads")] = None,
    exit_when_idle: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Exit after this time without work, such as 10m."),
    ] = None,
    on_idle: Annotated[
        str | None,
        typer.Option(metavar="COMMAND", help="Shell command to run after --exit-when-idle, such as 'sudo poweroff'."),
    ] = None,
) -> None:
    """Run the workers of this machine, one per GPU, until stopped.

    CUDA_VISIBLE_DEVICES, such as 0,2, chooses GPUs. Each worker serves what open runs need, and is started again if it dies.
    SIGTERM or Ctrl-C stops all workers at their next batch; their shards go back to the queue.
    """
    _into_environment(
        model=json.dumps(models) if models else None,
        scorer=scorer,
        device=device,
        threads=threads,
        gpus_per_worker=gpus_per_worker,
        sharding=sharding,
    )
    from shardsift.worker.supervisor.supervisor import run_supervisor

    code = run_supervisor(
        read_settings(),
        workers=workers,
        name=name,
        exit_when_idle=exit_when_idle,
        on_idle=on_idle,
    )
    raise typer.Exit(code)


@cli.command(hidden=True)
def serve(
    name: Annotated[str, typer.Option(help="Name of this worker. Must be unique on a machine.")] = "worker",
) -> None:
    """Run one worker on one device, with the settings in the environment. `worker start` runs this for each slot."""
    raise typer.Exit(_run_celery(["worker", "--hostname", f"{name}@%h", "--loglevel", "INFO", *QUIET]))


def _run_celery(arguments: list[str]) -> int:
    from shardsift.worker.app import app

    try:
        app.worker_main(arguments)
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else 0
    return 0


# Check this machine.


@cli.command(epilog="Example: worker doctor --model ./my-classifier")
def doctor(
    models: Annotated[
        list[str] | None,
        typer.Option(
            "--model",
            metavar="MODEL",
            help="Model to try. May be repeated. Default: SHARDSIFT_MODEL, else what open runs need first.",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON on stdout.")] = False,
) -> None:
    """Check this machine for a worker: GPU, driver and torch, Redis, the Hub, and that the model loads.

    Prints a line for each check, and how to fix what is wrong. Exits with 1 if something is.
    """
    _into_environment(model=json.dumps(models) if models else None)
    from shardsift.fleet.checks import run_checks
    from shardsift.worker.machine_doctor import worker_checks

    run_checks(worker_checks(read_settings()), as_json=as_json)


# Find the fastest settings for a model on this device.


@cli.command(epilog="Example: worker tune --model ./my-classifier --input './shards/*.parquet' --output ./tuning.png")
@with_options_of(TuneOptions, labels=split_at_commas)
def tune(
    options: TuneOptions,
    model: Annotated[
        str | None,
        model_option(
            "--model",
            metavar="MODEL",
            help="Hub name or folder. Default: SHARDSIFT_MODEL, else fineweb-edu-classifier.",
        ),
    ] = None,
    dtype: Annotated[
        choices.Dtype | None, typer.Option(help="Number format. Default: SHARDSIFT_DTYPE, else auto.")
    ] = None,
    device: Device = None,
) -> None:
    """Find the fastest batch size for a model on this device. `worker start` then uses it.

    Use the same reading options as for the run. The best batch size is the smallest within 2 % of the fastest.
    """
    from shardsift.worker.scoring.quiet import quieten_imports
    from shardsift.worker.tuning.tune_options import scoring_to_tune

    _into_environment(model=model, dtype=dtype, device=device)
    settings = read_settings()
    scoring = scoring_to_tune(settings, options)  # before torch, which takes seconds to load
    quieten_imports()
    from shardsift.fleet.errors import UsageError
    from shardsift.worker.scoring import ModelError
    from shardsift.worker.tuning.tune import draw_chart, tuning_lines, tuning_table
    from shardsift.worker.tuning.tune import tune as tune_model

    try:
        tuning = tune_model(settings, scoring, options, say)
    except ModelError as error:
        raise UsageError(str(error)) from error
    if options.chart_file:
        draw_chart(options.chart_file, tuning)
    print_table(tuning_table(tuning))
    for line in tuning_lines(tuning):
        typer.echo(line)


@cli.command(
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
    same command resumes after the last checkpoint. On several GPUs: `torchrun --nproc-per-node N -m shardsift train …`.
    """
    from shardsift.worker.scoring.quiet import quieten_imports

    quieten_imports()
    from shardsift.fleet.errors import ExitCode, Stopped
    from shardsift.worker.training.train import train as train_model
    from shardsift.worker.training.train_report import next_step

    try:
        report = train_model(options, device=read_settings(device=device).device, say=say)
    except Stopped as stop:
        say(str(stop))
        raise typer.Exit(ExitCode.INTERRUPTED) from stop
    if report is None:
        return
    if as_json:
        print_json(report.as_json())
    else:
        typer.echo(str(report))
    say(next_step(report))


if __name__ == "__main__":
    main()
