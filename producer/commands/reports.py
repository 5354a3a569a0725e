"""What the subcommands print."""

from typing import TYPE_CHECKING

import typer

from fleet.process.command_line import print_json, say
from fleet.process.wording import counted, first_of

if TYPE_CHECKING:
    from producer.planning.enqueue import Enqueued
    from producer.planning.estimate import Estimate
    from producer.planning.plan import Plan
    from producer.status import RunStatus

_NAMED_FILES = 3


def report(status: "RunStatus", *, as_json: bool) -> None:
    """Print a run's status, and exit with its code."""
    if as_json:
        print_json(status.as_json())
    else:
        typer.echo(str(status))
    raise typer.Exit(status.exit_code)


def print_plan(plan: "Plan", *, as_json: bool) -> None:
    """Print what a run would do, and what it is estimated to take."""
    from producer.planning.plan_report import estimate_lines, plan_report

    report = plan_report(plan)
    rows = report["rows"]
    estimate = _checked_estimate(plan, rows if isinstance(rows, int) else None)
    if as_json:
        print_json(report | {"estimate": estimate.as_json()})
        return
    for name, value in report.items():
        shown = f"{value:,}" if isinstance(value, int) else value
        typer.echo(f"{name.replace('_', ' ')}: {shown}")
    for line in estimate_lines(estimate):
        typer.echo(line)


def _checked_estimate(plan: "Plan", counted_rows: int | None) -> "Estimate":
    """Raises UsageError if the output cannot be used."""
    from fleet.process.settings import read_settings
    from producer.planning.enqueue import check_output
    from producer.planning.estimate import estimate_run, ledger_if_it_answers

    settings = read_settings()
    with ledger_if_it_answers(settings) as ledger:
        check_output(plan, ledger)
        return estimate_run(
            plan,
            counted_rows=counted_rows,
            ledger=ledger,
            price_per_gpu_hour=settings.price_per_gpu_hour,
        )


def say_left_out(plan: "Plan") -> None:
    """Name the files of the input's folders that are not read, because their names mean no format."""
    names = plan.left_out
    if not names:
        return
    are, ending = ("is", "its ending is not that") if len(names) == 1 else ("are", "their endings are not those")
    named = first_of(names, _NAMED_FILES)
    say(f"{counted(len(names), 'file')} {are} left out, because {ending} of an input: {named}.")


def print_enqueued(done: "Enqueued", *, as_json: bool) -> None:
    if as_json:
        print_json(
            {
                "run_id": done.run_id,
                "queue": done.queue,
                "shards": done.counts.shards,
                "added": done.added,
                "paused": done.paused,
            }
        )
        return
    say(
        f"{counted(done.counts.shards, 'shard')}: {done.added} new{taken_over(done)}, {done.counts.done} done, "
        f"{done.counts.open} to do."
    )
    say_if_paused(done)
    say(f"Watch it: producer status {done.run_id}")
    typer.echo(done.run_id)


def say_begun(done: "Enqueued") -> None:
    """Runs after the checks, because the output may belong to another run, and the same options resume an earlier run."""
    say(f"Run {done.run_id}: {counted(done.counts.shards, 'shard')}{taken_over(done)}, {done.counts.done:,} done")
    say_instead_of(done)
    say_findings(done)
    say_if_paused(done)


def say_instead_of(done: "Enqueued") -> None:
    if done.instead_of:
        say(f"Run {done.instead_of} of this output had scored nothing. It is cancelled, and this run takes its place.")


def say_if_paused(done: "Enqueued") -> None:
    """The same command adds nothing to a paused run, and does not resume it."""
    if done.paused:
        say(f"The run is paused. Resume it: producer resume {done.run_id}")


def say_findings(done: "Enqueued") -> None:
    """Print what was wrong with the output of a published run before this command repaired it."""
    from fleet.storage.inspection import lines_of

    if done.findings:
        say("The output has changed since it was published:")
        for line in lines_of(done.findings):
            say(f"  {line}")
        say(f"Shards to score again: {done.counts.open}. All others stay as they are.")


def taken_over(done: "Enqueued") -> str:
    return f", {done.restored} taken over from receipts" if done.restored else ""
