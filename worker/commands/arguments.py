"""Options that several subcommands share. They become environment variables, because a worker's processes read those."""

import os
from typing import Annotated

import typer

from fleet import choices


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
        help="Divide the model over N GPUs, for a model that is larger than one. Needs shardsift[sharded]. "
        "Default: SHARDSIFT_GPUS_PER_WORKER, else 1.",
    ),
]
WayToShard = Annotated[
    choices.WayToShard | None,
    typer.Option(
        "--sharding",
        help="How to divide it: by layers, for any model; by tensor, if transformers has a plan for the family; auto: tensor "
        "if that works, otherwise layers.",
    ),
]


def into_environment(**settings: object) -> None:
    """Set the environment variable of each option that was given."""
    given = {f"SHARDSIFT_{name.upper()}": str(value) for name, value in settings.items() if value is not None}
    os.environ.update(given)
