"""Options and reports that several commands share."""

from typing import TYPE_CHECKING, Annotated

import typer

from fleet.process.command_line import print_json, say
from fleet.process.wording import counted, first_of

if TYPE_CHECKING:
    from producer.planning.enqueue import Enqueued
    from producer.planning.plan import Plan
    from producer.status import RunStatus

_NAMED_FILES = 3

RunId = Annotated[str, typer.Argument(metavar="RUN", help="A run id from `producer runs`.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON on stdout.")]
DryRun = Annotated[
    bool,
    typer.Option(
        "--dry-run",
        help="Show the plan, and estimate tokens, GPU-hours and cost. Starts and writes nothing.",
    ),
]
MaxWorkers = Annotated[
    int | None,
    typer.Option(min=0, metavar="N", help="Let at most N workers score the run at once. 0: any number."),
]
MaxCost = Annotated[
    float | None,
    typer.Option(
        min=0,
        metavar="X",
        help="Pause the run when it has cost this much, at SHARDSIFT_PRICE_PER_GPU_HOUR. 0: no limit.",
    ),
]
Verify = Annotated[bool, typer.Option("--verify", help="Compare the sha256 of published files, not only their sizes.")]


def report(status: "RunStatus", *, as_json: bool) -> None:
    """Print a run's status, and exit with its code."""
    if as_json:
        print_json(status.as_json())
    else:
        typer.echo(str(status))
    raise typer.Exit(status.exit_code)


def print_plan(plan: "Plan", *, as_json: bool) -> None:
    """Print what a run would do, and what it is estimated to take. Raises UsageError if the output cannot be used."""
    from fleet.process.settings import read_settings
    from producer.planning.enqueue import check_output
    from producer.planning.estimate import estimate_run, ledger_if_it_answers, plan_report

    settings = read_settings()
    found = plan_report(plan)
    rows = found["rows"] if isinstance(found["rows"], int) else None
    with ledger_if_it_answers(settings) as ledger:
        check_output(plan, ledger)
        estimate = estimate_run(plan, counted_rows=rows, ledger=ledger, price_per_gpu_hour=settings.price_per_gpu_hour)
    if as_json:
        print_json(found | {"estimate": estimate.as_json()})
        return
    for name, value in found.items():
        shown = f"{value:,}" if isinstance(value, int) else value
        typer.echo(f"{name.replace('_', ' ')}: {shown}")
    for line in estimate.lines():
        typer.echo(line)


def say_left_out(plan: "Plan") -> None:
    """Name the files of the input's folders that are not read, because their names mean no format."""
    if names := plan.left_out:
        say(f"Not read, because the ending is not that of an input: {first_of(names, _NAMED_FILES)}.")


def say_begun(done: "Enqueued") -> None:
    """Say how a run stands after it was enqueued: the same options continue an earlier run."""
    restored = f", {done.restored} taken over from receipts" if done.restored else ""
    say(f"Run {done.run_id}: {counted(done.counts.shards, 'shard')}{restored}, {done.counts.done:,} done")
    if done.instead_of:
        say(f"Run {done.instead_of} of this output had scored nothing. It is cancelled, and this run takes its place.")
    if done.findings:
        _say_findings(done)
    if done.paused:  # the same command does not resume it
        say(f"The run is paused. Resume it: producer resume {done.run_id}")


def _say_findings(done: "Enqueued") -> None:
    """Print what was wrong with the output of a published run before this command repaired it."""
    from fleet.storage.inspection import lines_of

    say("The output has changed since it was published:")
    for line in lines_of(done.findings):
        say(f"  {line}")
    say(f"Shards to score again: {done.counts.open}. All others stay as they are.")
