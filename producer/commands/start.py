"""Start a run: on the fleet, on this machine, or over stored scores."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from shardsift.fleet.errors import ExitCode, NothingToAdd, UsageError
from shardsift.fleet.process.command_line import Commands, print_json, say
from shardsift.fleet.process.keywords import with_options_of
from shardsift.fleet.process.wording import counted, first_of
from shardsift.producer.commands.shared import (
    AsJson,
    DryRun,
    OnlyRunOrTarget,
    ScoreAgain,
    Verify,
    print_found,
    read_settings,
    report,
)
from shardsift.producer.planning.options import RefilterOptions, RunOptions, with_run_options

if TYPE_CHECKING:
    from shardsift.fleet.storage.open_output import Published
    from shardsift.producer.planning.enqueue import Enqueued
    from shardsift.producer.planning.plan import Plan

_NAMED_FILES = 3
Done = TypeVar("Done")

commands = Commands(panel="Runs")


@commands.command(epilog="Example: producer enqueue --crawl CC-MAIN-2024-10")
@with_run_options
def enqueue(
    options: RunOptions,
    dry_run: DryRun = False,
    score_again: ScoreAgain = False,
    verify: Verify = False,
    as_json: AsJson = False,
) -> None:
    """Send the fleet one task per shard of a crawl or of your own files. Running it twice adds nothing."""
    if dry_run:
        _print_plan(_planned(options, as_json=as_json), as_json=as_json)
        return
    from shardsift.fleet.ledger import Ledger
    from shardsift.fleet.process.broker import make_app
    from shardsift.producer.planning.enqueue import enqueue as enqueue_plan

    settings = read_settings()
    ledger = Ledger.connect(settings)
    plan = _planned(options, as_json=as_json)  # after Redis has answered, since planning may take long
    app = make_app("producer", settings)
    done = _asking(partial(enqueue_plan, plan, ledger, app, settings, verify=verify, score_again=score_again))
    _say_begun(done)
    if as_json:
        print_json(done.as_json())
        return
    say(f"Watch it: producer status {done.run_id}")
    typer.echo(done.run_id)


@commands.command(epilog="Example: producer run --input './shards/*.parquet' --output ./kept --min-score 2.5")
@with_run_options
def run(
    options: RunOptions,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Worker processes. Default: one per GPU, or one on the CPU.")
    ] = None,
    dry_run: DryRun = False,
    preview: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="Score N rows of all shards, such as 200, and show what the filter keeps, how the scores are spread, and texts. "
            "Publishes and keeps nothing.",
        ),
    ] = None,
    score_again: ScoreAgain = False,
    verify: Verify = False,
    as_json: AsJson = False,
) -> None:
    """Do a whole run on this machine. Starts Redis, workers and a finalizer, and stops them at the end.

    The same command resumes an interrupted run.
    """
    if preview is not None and dry_run:
        raise UsageError("Use only one of --preview and --dry-run.")
    plan = _planned(options, as_json=as_json)
    if preview is not None:
        _preview(plan, preview, as_json=as_json)
    if dry_run:
        _print_plan(plan, as_json=as_json)
        return
    _run(plan, workers=workers, verify=verify, score_again=score_again, as_json=as_json, before=plan.extended)


@commands.command(
    epilog="Example: producer refilter ./kept --min-score 2.5 --output ./kept-2.5 --input './shards/*.parquet'"
)
@with_options_of(RefilterOptions)
def refilter(
    options: RefilterOptions,
    target: OnlyRunOrTarget = None,
    workers: Annotated[int | None, typer.Option(min=1, help="Worker processes. Default: one per CPU core.")] = None,
    verify: Verify = False,
    as_json: AsJson = False,
) -> None:
    """Re-filter a published run from its stored scores, on this machine, without a GPU or torch.

    Publishes the same rows as a new run with that filter. The same command resumes an interrupted one.
    """
    from shardsift.fleet.process.wording import is_place
    from shardsift.fleet.scorers.stored_scores import published_run
    from shardsift.producer.opening import published_output_of
    from shardsift.producer.planning.refilter import plan_refilter
    from shardsift.producer.transient_errors import with_retries

    uri, input_uris = (target, ()) if target and is_place(target) else published_output_of(target, read_settings())
    with _exit_if_nothing_to_add(as_json=as_json):
        plan = plan_refilter(uri, options, input_uris=input_uris)
    for line in plan.notes:
        say(line)
    before = with_retries(published_run)(plan.spec.output_uri) if options.replaces or options.extends else None
    _run(plan, workers=workers, verify=verify, as_json=as_json, before=before)


def _planned(options: RunOptions, *, as_json: bool) -> "Plan":
    """Check the options, plan the run and print the plan's notes.

    Exits with 0 if the dataset to extend already has all files of the input.
    """
    from shardsift.producer.planning.plan import plan_run

    with _exit_if_nothing_to_add(as_json=as_json):
        plan = plan_run(options)
    if not options.output_uri:
        sight = "public" if options.public else "private; --public makes it public"
        say(f"Publishing to {plan.spec.output_uri} (created {sight}).")
    for line in plan.notes:
        say(line)
    if plan.left_out:
        named = first_of(plan.left_out, _NAMED_FILES)
        say(f"Not read, because a name begins with _ or its ending is not that of an input: {named}.")
    return plan


@contextmanager
def _exit_if_nothing_to_add(*, as_json: bool) -> Iterator[None]:
    try:
        yield
    except NothingToAdd as told:
        say(str(told))
        if as_json:
            print_json(told.published)
        raise typer.Exit(ExitCode.DONE) from told


def _asking(start: Callable[..., Done]) -> Done:
    """Call `start`. If it raises ScoredBefore, ask whether to score the rows again. Without a terminal, raise it instead."""
    from shardsift.fleet.errors import ScoredBefore

    try:
        return start()
    except ScoredBefore as told:
        if not (sys.stdin.isatty() and sys.stderr.isatty()):
            raise
        say(str(told))
        if not typer.confirm("Score them again?", err=True):
            raise typer.Exit(ExitCode.USAGE) from told
        return start(score_again=True)


def _run(plan: "Plan", *, as_json: bool, before: "Published | None" = None, **how: Any) -> None:
    """Do a planned run on this machine, report how it ended, and exit. `how` has further arguments of `run_locally`.

    `before` is the published dataset that the run changes, if it changes one.
    """
    from shardsift.producer.local.run import run_locally

    try:
        ended = _asking(partial(run_locally, plan, read_settings(), on_enqueued=_say_begun, **how))
    except KeyboardInterrupt as stop:
        say("Stopped. Run the same command again to resume.")
        raise typer.Exit(ExitCode.INTERRUPTED) from stop
    if before and ended.is_published:
        _say_sent(before)
    report(ended, as_json=as_json)


def _say_sent(replaced: "Published") -> None:
    from shardsift.fleet.scorers.stored_scores import published_run
    from shardsift.fleet.storage.inspection import files_of
    from shardsift.producer.transient_errors import with_retries

    before, now = (files_of(one.receipts).keys() for one in (replaced, with_retries(published_run)(replaced.uri)))
    sent, whole = (sum(file.size_bytes for file in files) for files in (now - before, now))
    say(f"Sent {sent:,} of {whole:,} bytes. The other files had not changed.")


def _preview(plan: "Plan", rows: int, *, as_json: bool) -> None:
    """Score a sample of the rows, print the result, and exit. Exits with 1 if the run would fail because of bad rows."""
    from shardsift.producer.local.preview import preview_run

    say(f"Scoring up to {counted(rows, 'row')} on this machine. Nothing is published or kept.")
    try:
        found = preview_run(plan, read_settings(), rows)
    except KeyboardInterrupt as stop:
        raise typer.Exit(ExitCode.INTERRUPTED) from stop
    print_found(found.lines(), asdict(found), as_json=as_json)
    raise typer.Exit(ExitCode.FAILED if found.refused else ExitCode.DONE)


def _print_plan(plan: "Plan", *, as_json: bool) -> None:
    """Print what a run would do, and its estimated tokens, hours and cost.

    Raises UsageError if the output cannot be used. Exits with 1 if a sample of the rows shows that the run would fail.
    """
    from shardsift.producer.planning.enqueue import check_output, scored_before
    from shardsift.producer.planning.estimate import estimate_run, ledger_if_it_answers, plan_report

    settings = read_settings()
    found = plan_report(plan)
    rows = found["rows"] if isinstance(found["rows"], int) else None
    ledger = ledger_if_it_answers(settings)
    check_output(plan, ledger)
    if ledger and (told := scored_before(plan, ledger, settings)):
        say(told)
    estimate = estimate_run(plan, counted_rows=rows, ledger=ledger, price_per_gpu_hour=settings.price_per_gpu_hour)
    if as_json:
        print_json(found | {"estimate": estimate.as_json()})
    else:
        for name, value in found.items():
            shown = f"{value:,}" if isinstance(value, int) else value
            typer.echo(f"{name.replace('_', ' ')}: {shown}")
        for line in estimate.lines():
            typer.echo(line)
    if estimate.refused:
        raise typer.Exit(ExitCode.FAILED)


def _say_begun(done: "Enqueued") -> None:
    """Print how far an enqueued run is. The same options continue an earlier run, so shards may be done already."""
    restored = f", {done.restored} taken over from receipts" if done.restored else ""
    say(f"Run {done.run_id}: {counted(done.counts.shards, 'shard')}{restored}, {done.counts.done:,} done")
    if done.instead_of:
        say(f"Run {done.instead_of} of this output had scored nothing. It is cancelled, and this run takes its place.")
    if done.findings:
        _say_findings(done)
    if done.paused:  # the same command does not resume it
        say(f"The run is paused. Resume it: producer resume {done.run_id}")


def _say_findings(done: "Enqueued") -> None:
    from shardsift.fleet.storage.inspection import lines_of

    say("The output has changed since it was published:")
    for line in lines_of(done.findings):
        say(f"  {line}")
    say(f"Shards to score again: {done.counts.open}. All others stay as they are.")
