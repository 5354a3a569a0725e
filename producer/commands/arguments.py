"""Arguments and options that several subcommands share."""

from typing import Annotated

import typer

RunId = Annotated[str, typer.Argument(metavar="RUN", help="A run id from `producer runs`.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON on stdout.")]
DryRun = Annotated[
    bool,
    typer.Option(
        "--dry-run",
        help="Show the plan: shards, rows, model, filter and output; and what it is estimated to take: tokens, GPU-hours "
        "and cost for each kind of GPU. Starts and writes nothing.",
    ),
]
MaxWorkers = Annotated[
    int | None,
    typer.Option(
        min=0, metavar="N", help="Let at most N workers hold shards of the run at once. 0: any number, as by default."
    ),
]
MaxCost = Annotated[
    float | None,
    typer.Option(
        min=0,
        metavar="X",
        help="Pause the run when its work has cost this much, at SHARDSIFT_PRICE_PER_GPU_HOUR. 0: no limit, as by default.",
    ),
]
Verify = Annotated[
    bool, typer.Option("--verify", help="Read all published files and compare their sha256, not only their sizes.")
]
