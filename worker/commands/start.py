"""Run the workers of a machine, or one worker."""

import json
import os
from typing import Annotated

import typer

from fleet.process.command_line import QUIET, Commands
from fleet.run import choices

# Options that several subcommands share. They become environment variables, because a worker's processes read those.


def _checked_device(device: str | None) -> str | None:
    if device is not None and not choices.is_device(device):
        raise typer.BadParameter(f"{device!r} is not one of {choices.DEVICES}.")
    return device


Device = Annotated[
    str | None,
    typer.Option(
        metavar="DEVICE",
        callback=_checked_device,
        help=f"Where to score: {choices.DEVICES}. Default: SHARDSIFT_DEVICE, else auto.",
    ),
]
Threads = Annotated[
    int | None,
    typer.Option(help="CPU threads for the model. Default: its share of the cores."),
]
Compile = Annotated[
    bool | None,
    typer.Option("--compile", help="Use torch.compile: starts more slowly, then scores more rows per second."),
]
GpusPerWorker = Annotated[
    int | None,
    typer.Option(
        min=1,
        metavar="N",
        help="Divide the model over N GPUs. Needs shardsift[sharded]. Default: 1.",
    ),
]
WayToShard = Annotated[
    choices.WayToShard | None,
    typer.Option(
        "--sharding",
        help="How to divide it: by layers, for any model; by tensor, for some families; auto: tensor if that works.",
    ),
]


def into_environment(**settings: object) -> None:
    """Set the environment variable of each option that was given."""
    given = {f"SHARDSIFT_{name.upper()}": str(value) for name, value in settings.items() if value is not None}
    os.environ.update(given)


commands = Commands()

ModelNames = Annotated[
    list[str] | None,
    typer.Option(
        "--model",
        metavar="MODEL",
        help="Serve only runs with this model. Repeat it for a run with several. Default: SHARDSIFT_MODEL, else what open "
        "runs need.",
    ),
]
LogLevel = Annotated[choices.LogLevel, typer.Option(case_sensitive=False, help="Lowest level to log.")]


@commands.command(epilog="Example: REDIS_URL=redis://10.0.0.5:6379/0 REDIS_PASSWORD_FILE=./redis_password worker start")
def start(
    models: ModelNames = None,
    dtype: Annotated[
        choices.Dtype | None,
        typer.Option(help="Serve only runs with this --dtype. Default: any."),
    ] = None,
    scorer: Annotated[
        str | None,
        typer.Option(metavar="KIND", help="Kind of scorer of --model. Default: sequence-classifier."),
    ] = None,
    gpus: Annotated[
        str,
        typer.Option(
            metavar="all|N|0,2",
            help="GPUs to use: all, the first N, or a list, such as 0,2 or 1, for one. 0: the CPU.",
        ),
    ] = "all",
    workers: Annotated[
        int | None,
        typer.Option(min=1, help="Workers to start. Default: one per GPU; on a CPU one."),
    ] = None,
    gpus_per_worker: GpusPerWorker = None,
    sharding: WayToShard = None,
    name: Annotated[
        str | None,
        typer.Option(help="Name of the worker, or how the names begin. Default: gpu0, gpu1, …"),
    ] = None,
    device: Device = None,
    threads: Threads = None,
    compile: Compile = None,
    spot_notice: Annotated[
        choices.SpotCloud | None,
        typer.Option(help="Stop in time when this cloud reclaims the spot machine."),
    ] = None,
    exit_when_idle: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Exit after so long without work, such as 10m."),
    ] = None,
    on_idle: Annotated[
        str | None,
        typer.Option(metavar="COMMAND", help="Shell command to run then, such as 'sudo poweroff'."),
    ] = None,
    log_level: LogLevel = "INFO",
) -> None:
    """Run the workers of this machine, one per GPU, until stopped.

    Each serves what open runs need. A worker that dies is started again. SIGTERM or Ctrl-C stops all at their next batch;
    their shards go back to the queue.
    """
    into_environment(
        model=json.dumps(models) if models else None,
        scorer=scorer,
        dtype=dtype,
        device=device,
        threads=threads,
        compile=compile,
        gpus_per_worker=gpus_per_worker,
        sharding=sharding,
        spot_notice=spot_notice,
    )
    from fleet.process.settings import read_settings
    from worker.supervisor.supervisor import start as start_workers

    code = start_workers(
        read_settings(),
        gpus=gpus,
        workers=workers,
        name=name,
        exit_when_idle=exit_when_idle,
        on_idle=on_idle,
        log_level=log_level,
    )
    raise typer.Exit(code)


@commands.command(hidden=True)
def serve(
    name: Annotated[str, typer.Option(help="Name of this worker. Must be unique on a machine.")] = "worker",
    log_level: LogLevel = "INFO",
) -> None:
    """Run one worker on one device. `worker start` runs it for each; the settings in the environment say what it loads."""
    raise typer.Exit(_run_celery(["worker", "--hostname", f"{name}@%h", "--loglevel", log_level, *QUIET]))


def _run_celery(arguments: list[str]) -> int:
    from worker.app import app

    try:
        app.worker_main(arguments)
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else 0
    return 0


# Check this machine.


@commands.command(epilog="Example: worker doctor --model ./my-classifier")
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

    Prints a line for each check, and how to mend what is wrong. Exits with 1 if something is.
    """
    into_environment(model=json.dumps(models) if models else None)
    from fleet.doctor import report
    from fleet.process.settings import read_settings
    from worker.doctor import worker_checks

    report(worker_checks(read_settings()), as_json=as_json)
