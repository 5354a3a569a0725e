"""The command `producer`. Each subcommand parses options, makes one call and prints a report.

Each subcommand imports what it needs when it runs, so that help appears at once.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fleet.choices import LogLevel
from fleet.command_line import (
    QUIET,
    new_command_line,
    print_json,
    print_table,
    run_command_line,
    say,
)
from fleet.counted import counted
from producer.options import RunOptions, with_run_options

if TYPE_CHECKING:
    from fleet.ledger import Ledger
    from fleet.settings import Settings
    from producer.enqueue import Enqueued
    from producer.plan import Plan
    from producer.status import RunStatus

cli = new_command_line(
    "producer",
    help="The control side of shardsift: score and filter Parquet datasets with transformer classifiers.\n\n"
    "Exit codes: 0 done; 1 some shards failed, the run cannot be published, or its output is damaged; "
    "2 wrong options or no Redis; 3 not finished yet; 4 cancelled; 130 interrupted.",
)

RunId = Annotated[str, typer.Argument(metavar="RUN", help="A run id from `producer runs`.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON on stdout.")]
Verify = Annotated[
    bool, typer.Option("--verify", help="Read all published files and compare their sha256, not only their sizes.")
]


@cli.command(
    rich_help_panel="Runs",
    epilog="Example: producer enqueue --crawl CC-MAIN-2024-10 --wait",
)
@with_run_options
def enqueue(
    options: RunOptions,
    wait: Annotated[bool, typer.Option("--wait", help="Show progress and return when the run ends.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be sent without sending it.")] = False,
    verify: Verify = False,
    as_json: AsJson = False,
) -> None:
    """Send the fleet one task per shard of a crawl or of your own files. Running it twice adds nothing."""
    if dry_run:
        _print_plan(_planned(options), as_json=as_json)
        return
    _enqueue(lambda: _planned(options), wait=wait, verify=verify, as_json=as_json)


@cli.command(
    rich_help_panel="Runs", epilog="Example: producer run --input './shards/*.parquet' --output ./kept --min-score 2.5"
)
@with_run_options
def run(
    options: RunOptions,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Worker processes. Default: one per GPU, or one on the CPU.")
    ] = None,
    verify: Verify = False,
    as_json: AsJson = False,
) -> None:
    """Do a whole run on this machine. Starts Redis, workers and a finalizer, and stops them at the end.

    Ctrl-C stops the run cleanly. The same command resumes it.
    """
    _run(_planned(options), workers=workers, verify=verify, as_json=as_json)


@cli.command(
    rich_help_panel="Runs",
    epilog="Example: producer refilter ./kept --min-score 2.5 --output ./kept-2.5 --input './shards/*.parquet'",
)
def refilter(
    target: Annotated[
        str,
        typer.Argument(metavar="RUN|URI", help="A run id, or the folder, bucket or hf:// dataset it was published to."),
    ],
    output: Annotated[str, typer.Option(metavar="URI", help="Where to put the rows: a new place, as for `run`.")],
    min_score: Annotated[float | None, typer.Option(help="Keep rows with at least this score.")] = None,
    where: Annotated[
        str | None, typer.Option(metavar="SQL", help="Keep rows for which this SQL condition is true.")
    ] = None,
    keep_all: Annotated[bool, typer.Option("--keep-all", help="Keep every row that has a score.")] = False,
    input_uris: Annotated[
        list[str] | None,
        typer.Option("--input", metavar="URI", help="Where the input of that run is. Default: where it was."),
    ] = None,
    public: Annotated[
        bool, typer.Option("--public", help="Create the dataset on the Hub public, not private.")
    ] = False,
    workers: Annotated[int | None, typer.Option(min=1, help="Worker processes. Default: one per CPU core.")] = None,
    enqueue_only: Annotated[
        bool,
        typer.Option(
            "--enqueue-only", help="Only send the tasks to the fleet. `producer status` says how to start its workers."
        ),
    ] = False,
    verify: Verify = False,
    as_json: AsJson = False,
) -> None:
    """Publish other rows of a run by its stored scores: a new threshold without a GPU, and without torch.

    Reads the input and the scores, and does a whole run on this machine, as `producer run` does. The result is what a run
    with that filter would publish. The same command resumes an interrupted run.
    """
    from fleet.settings import read_settings
    from producer.opening import published_output_of
    from producer.plan import Choice
    from producer.refilter import RefilterOptions, plan_refilter
    from producer.target import is_place

    uri, earlier = (target, None) if is_place(target) else published_output_of(target, read_settings())
    options = RefilterOptions(
        choice=Choice(min_score=min_score, where=where, keep_all=keep_all),
        output_uri=output,
        input_uris=tuple(input_uris or ()),
        public=public,
    )

    def plan() -> "Plan":
        return plan_refilter(uri, options, earlier=earlier)

    if enqueue_only:
        _enqueue(plan, wait=False, verify=verify, as_json=as_json)
    else:
        _run(plan(), workers=workers, verify=verify, as_json=as_json)


@cli.command(
    rich_help_panel="Runs", epilog="Example: producer status cc-main-2024-10.fineweb-edu-classifier.3f2a91c04dd1"
)
def status(
    run_id: Annotated[str | None, typer.Argument(metavar="[RUN]", help="A run id. Default: the newest run.")] = None,
    verify: Verify = False,
    as_json: AsJson = False,
) -> None:
    """Show the state of a run, and check its output if it is published. The exit code reflects the state."""
    from producer.api import status as find_status

    _report(find_status(run_id, verify=verify), as_json=as_json)


@cli.command(rich_help_panel="Runs", epilog="Example: producer runs --json")
def runs(as_json: AsJson = False) -> None:
    """List all runs in the ledger, newest first. Does not check their outputs; `producer status` does."""
    from fleet.workers import list_workers
    from producer.status import run_status, status_table

    with _open_ledger() as (settings, ledger):
        is_local, workers = settings.redis_is_embedded, list_workers(ledger.redis)
        statuses = [
            run_status(ledger, run_id, workers=workers, is_of_this_machine=is_local) for run_id in ledger.run_ids()
        ]
        if as_json:
            print_json([status.as_json() for status in statuses])
        else:
            print_table(status_table(statuses))


@cli.command(
    rich_help_panel="Runs", epilog="Example: producer retry cc-main-2024-10.fineweb-edu-classifier.3f2a91c04dd1"
)
def retry(
    run_id: RunId,
    every: Annotated[
        bool, typer.Option("--all", help="Also score shards again that are done. Asks for confirmation.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
) -> None:
    """Queue the failed shards of a run again, or resume a cancelled run."""
    from fleet.broker import make_app
    from fleet.dispatch import send_due_shards
    from producer.retry import retry_run

    with _open_ledger() as (settings, ledger):
        ledger.spec(run_id)
        if every and not yes:
            _confirm_scoring_again(run_id, done=ledger.counts(run_id).done)
        retried = retry_run(ledger, run_id, done_too=every)
        send_due_shards(make_app("producer", settings), ledger, run_id)
        for name in retried.changed:
            say(f"Shard {name}: the file has changed since it was enqueued. Its current content will be scored.")
        say(f"{counted(retried.queued, 'shard')} queued again.")


@cli.command(
    rich_help_panel="Runs", epilog="Example: producer cancel cc-main-2024-10.fineweb-edu-classifier.3f2a91c04dd1"
)
def cancel(run_id: RunId) -> None:
    """Stop a run. Workers stop at the next batch, and finished shards are kept. `producer retry` resumes the run."""
    with _open_ledger() as (_, ledger):
        ledger.spec(run_id)
        ledger.cancel(run_id)
        say(f"Run {run_id} is cancelled.")


@cli.command(
    rich_help_panel="Runs", epilog="Example: producer finalize cc-main-2024-10.fineweb-edu-classifier.3f2a91c04dd1"
)
def finalize(run_id: RunId, verify: Verify = False, as_json: AsJson = False) -> None:
    """Publish a run now, without its failed shards. A run without failures is published automatically."""
    from producer.finalizer.publish import NotReady, finalize_run
    from producer.status import ExitCode, looked_at, run_status

    with _open_ledger() as (_, ledger):
        ledger.spec(run_id)
        ledger.clear_publish_error(run_id)
        outcome = finalize_run(ledger, run_id, without_failed=True, hashes=verify)
        if isinstance(outcome, NotReady):
            say(f"Not published: {outcome.reason}.")
            raise typer.Exit(ExitCode.RUNNING)
        _report(looked_at(ledger, run_status(ledger, run_id), hashes=verify), as_json=as_json)


@cli.command(rich_help_panel="Runs", epilog="Example: producer verify ./kept --source './shards/*.parquet'")
def verify(
    target: Annotated[
        str,
        typer.Argument(metavar="RUN|URI", help="A run id, or the folder, bucket or hf:// dataset it was published to."),
    ],
    source: Annotated[
        list[str] | None,
        typer.Option(
            metavar="URI", help="Also compare every row with this input. Repeat it as often as --input was given."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Check a published dataset: hashes, counts, schemas and scores; no duplicate rows, missing shards or foreign files.

    Reads the whole output. A URI needs no Redis. Exits with 0 if the dataset is sound, 1 if it is damaged or its manifest
    is lost, and 2 if shardsift has published nothing there.
    """
    from producer.api import verify as verify_output
    from producer.status import ExitCode

    found = verify_output(target, source=tuple(source or ()))
    if as_json:
        print_json(found.as_json())
    else:
        for line in found.lines():
            typer.echo(line)
    raise typer.Exit(ExitCode.DONE if found.is_sound else ExitCode.FAILED)


@cli.command(
    rich_help_panel="Services",
    epilog="Example: REDIS_URL=redis://10.0.0.5:6379/0 REDIS_PASSWORD_FILE=./redis_password producer finalizer",
)
def finalizer(
    log_level: Annotated[LogLevel, typer.Option(case_sensitive=False, help="Lowest level to log.")] = "INFO",
) -> None:
    """Serve a fleet: find lost messages and dead workers, and publish finished runs. Run one or more."""
    from producer.finalizer.app import app

    app.worker_main(["worker", "--hostname", "finalizer@%h", "--loglevel", log_level, *QUIET])


@cli.command(
    rich_help_panel="Services", epilog="Example: SHARDSIFT_FLOWER_AUTH_FILE=./flower_auth producer flower --port 5555"
)
def flower(
    address: Annotated[
        str, typer.Option(help="Address to listen on. Use 0.0.0.0 only behind a proxy with TLS.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port to listen on.")] = 5555,
) -> None:
    """Show the fleet in a browser with Flower: read-only, with a password and a stored history."""
    from fleet.settings import read_settings
    from producer.flower.start import run_flower

    run_flower(read_settings(), address=address, port=port)


@cli.command(rich_help_panel="Services", epilog="Example: producer demo --folder ./demo-output")
def demo(
    folder: Annotated[
        Path, typer.Option(help="Folder for everything the demo writes. Replaces an earlier demo there.")
    ] = Path("demo-output"),
    rows: Annotated[int, typer.Option(min=20, help="Rows in each of the 8 shards.")] = 100,
    workers: Annotated[int, typer.Option(min=2, help="Worker processes. They share the CPU or the GPUs.")] = 2,
) -> None:
    """Demonstrate a run offline: real text, a small classifier, two workers. Kills one worker and compares the results.

    Exits with 1 if the published files differ from those of an undisturbed run.
    """
    from fleet.settings import read_settings
    from producer.demo.command import (
        SHARDS,
        expected_fit_seconds,
        fit_classifier,
        look_at,
        make_inputs,
        sift_and_kill,
        sift_undisturbed,
    )
    from producer.demo.report import demo_report

    say(f"1/4  Making {SHARDS} shards of {rows} rows of real English text in {folder}/")
    folder = folder.absolute()
    labelled_rows = max(100, 6 * rows)
    make_inputs(folder, rows=rows, labelled_rows=labelled_rows)
    say(
        f"2/4  Fitting a classification head on a frozen MiniLM encoder: {labelled_rows:,} texts. Nothing is printed "
        f"meanwhile, on two CPU cores for about {expected_fit_seconds(labelled_rows):,.0f} s"
    )
    training = fit_classifier(folder)
    say(f"3/4  Scoring and filtering with {workers} workers, of which one is killed in the middle")
    settings = read_settings().model_copy(update={"redis_url": None, "state_dir": folder / "state"})
    status, killer = sift_and_kill(folder, settings, workers=workers)
    say("4/4  The same run undisturbed, to compare")
    sift_undisturbed(folder, settings, workers=workers)
    result = look_at(folder, status, killer)
    typer.echo(demo_report(folder, training, result))
    raise typer.Exit(result.exit_code)


def _planned(options: RunOptions) -> "Plan":
    """Check the options and plan the run. Tells the user where the rows go if no --output was given."""
    from producer.destination import with_output
    from producer.plan import plan_run

    chosen = with_output(options)
    if not options.output_uri:
        sight = "public" if options.public else "private; --public makes it public"
        say(f"Publishing to {chosen.output_uri} (created {sight}).")
    return plan_run(chosen)


def _enqueue(plan: "Callable[[], Plan]", *, wait: bool, verify: bool, as_json: bool) -> None:
    """Send a run to the fleet. It is planned if there is a fleet, since that may take long."""
    from fleet.broker import make_app
    from fleet.ledger import Ledger
    from fleet.settings import read_settings
    from producer.enqueue import enqueue
    from producer.progress import watch
    from producer.status import looked_at

    settings = read_settings()
    ledger = Ledger.connect(settings)
    app = make_app("producer", settings)
    done = enqueue(plan(), ledger, app, resend_seconds=settings.resend_seconds, verify=verify)
    _say_findings(done)
    if not wait:
        _print_enqueued(done, as_json=as_json)
        return
    say(f"{counted(done.added, 'shard')} new{_taken_over(done)}, {done.counts.done} of {done.counts.shards} done.")
    ended = watch(ledger, done.run_id, on_look=lambda: None)
    _report(looked_at(ledger, ended, hashes=verify), as_json=as_json)


def _run(plan: "Plan", *, workers: int | None, verify: bool, as_json: bool) -> None:
    """Do a planned run on this machine and report how it ended."""
    from fleet.settings import read_settings
    from producer.local.run import run_locally
    from producer.status import ExitCode

    try:
        ended = run_locally(plan, read_settings(), workers=workers, verify=verify, on_enqueued=_say_begun)
    except KeyboardInterrupt as stop:
        say("Stopped. Run the same command again to resume.")
        raise typer.Exit(ExitCode.INTERRUPTED) from stop
    _report(ended, as_json=as_json)


def _open_ledger() -> "AbstractContextManager[tuple[Settings, Ledger]]":
    """Open the fleet's ledger, or the one of this machine's own runs, during the block."""
    from fleet.settings import read_settings
    from producer.opening import open_ledger

    return open_ledger(read_settings())


def _confirm_scoring_again(run_id: str, *, done: int) -> None:
    """Ask on a terminal. Raises UsageError if there is no terminal to answer on."""
    import sys

    from fleet.errors import UsageError

    question = f"Score all shards of {run_id} again, {done:,} finished ones included?"
    if not sys.stdin.isatty():
        raise UsageError(f"{question} Confirm with --yes.")
    typer.confirm(question, abort=True, err=True)


def _report(status: "RunStatus", *, as_json: bool) -> None:
    """Print a run's status and exit with its code."""
    from producer.status import status_lines, what_next

    if as_json:
        print_json(status.as_json())
    else:
        for line in (*status_lines(status), *what_next(status)):
            typer.echo(line)
    raise typer.Exit(status.exit_code)


def _print_plan(plan: "Plan", *, as_json: bool) -> None:
    from producer.plan_report import plan_report

    report = plan_report(plan)
    if as_json:
        print_json(report)
    else:
        for name, value in report.items():
            shown = f"{value:,}" if isinstance(value, int) else value
            typer.echo(f"{name.replace('_', ' ')}: {shown}")


def _print_enqueued(done: "Enqueued", *, as_json: bool) -> None:
    if as_json:
        print_json({"run_id": done.run_id, "queue": done.queue, "shards": done.counts.shards, "added": done.added})
        return
    say(
        f"{counted(done.counts.shards, 'shard')}: {done.added} new{_taken_over(done)}, {done.counts.done} done, "
        f"{done.counts.open} to do."
    )
    say(f"Watch it: producer status {done.run_id}")
    typer.echo(done.run_id)


def _say_begun(done: "Enqueued") -> None:
    """Runs after the checks, because the output may belong to another run, and the same options resume an earlier run."""
    say(f"Run {done.run_id}: {counted(done.counts.shards, 'shard')}{_taken_over(done)}, {done.counts.done:,} done")
    _say_findings(done)


def _say_findings(done: "Enqueued") -> None:
    """Print what was wrong with the output of a published run before this command repaired it."""
    from fleet.storage.inspection import lines_of

    if done.findings:
        say("The output has changed since it was published:")
        for line in lines_of(done.findings):
            say(f"  {line}")
        say(f"Shards to score again: {done.counts.open}. All others stay as they are.")


def _taken_over(done: "Enqueued") -> str:
    return f", {done.restored} taken over from receipts" if done.restored else ""


def main() -> None:
    run_command_line("producer", cli)


if __name__ == "__main__":
    main()
