"""The command `producer`. Thin: options in, one call, a report out. Imports what a command needs inside that command,
so that help comes at once."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fleet.command_line import run_command_line
from producer.options import RunOptions, with_run_options

if TYPE_CHECKING:
    from fleet.ledger import Ledger
    from fleet.settings import Settings
    from producer.status import RunStatus

cli = typer.Typer(
    name="producer",
    help="The control side of shardsift: score and filter Parquet datasets with transformer classifiers.\n\n"
    "Exit codes: 0 done, 1 some shards failed, 2 wrong options or no Redis, 3 still running, 130 interrupted.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"max_content_width": 120},
)

_WIDE = 240  # columns of a table that a program reads
RunId = Annotated[str, typer.Argument(metavar="RUN", help="A run id, as `producer runs` lists them.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON on stdout.")]


@cli.command(
    rich_help_panel="Runs",
    epilog="Example: producer enqueue --crawl CC-MAIN-2024-10 --output hf://datasets/me/fineweb-edu-2024-10 --wait",
)
@with_run_options
def enqueue(
    options: RunOptions,
    wait: Annotated[bool, typer.Option("--wait", help="Show progress and return when the run is over.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be sent, and send nothing.")] = False,
    as_json: AsJson = False,
) -> None:
    """Turn every shard of a crawl into a task for the fleet. Running it twice adds nothing."""
    from producer.enqueue import plan_run

    plan = plan_run(options)
    if dry_run:
        _print_plan(plan, as_json=as_json)
        return
    from fleet.broker import make_app
    from producer.enqueue import enqueue as enqueue_plan

    settings, ledger = _fleet()
    done = enqueue_plan(plan, ledger, make_app("producer", settings), resend_seconds=settings.resend_seconds)
    if not wait:
        _print_enqueued(done, as_json=as_json)
        return
    from producer.progress import watch

    _say(f"{done.added} shards are new{_taken_over(done)}, {done.counts.done} of {done.counts.shards} are done.")
    _report(watch(ledger, done.run_id, on_look=lambda: None), as_json=as_json)


@cli.command(
    rich_help_panel="Runs", epilog="Example: producer run --input './shards/*.parquet' --output ./kept --min-score 2.5"
)
@with_run_options
def run(
    options: RunOptions,
    workers: Annotated[int | None, typer.Option(min=1, help="Worker processes. Default: one a GPU, else one.")] = None,
    as_json: AsJson = False,
) -> None:
    """Do a whole run on this machine: Redis, workers and finalizer are started, and stopped at the end.

    Ctrl-C stops it cleanly; the same command goes on where it stopped.
    """
    from fleet.settings import read_settings
    from producer.enqueue import plan_run
    from producer.local.run import run_locally
    from producer.status import ExitCode

    plan = plan_run(options)
    _say(f"Run {plan.spec.run_id}: {len(plan.shards)} shards")
    try:
        ended = run_locally(plan, read_settings(), workers=workers)
    except KeyboardInterrupt as stop:
        _say("Stopped. The same command goes on where this stopped.")
        raise typer.Exit(ExitCode.INTERRUPTED) from stop
    _report(ended, as_json=as_json)


@cli.command(
    rich_help_panel="Runs", epilog="Example: producer status cc-main-2024-10.fineweb-edu-classifier.3f2a91c04dd1"
)
def status(
    run_id: Annotated[str | None, typer.Argument(metavar="[RUN]", help="A run id. Default: the newest run.")] = None,
    as_json: AsJson = False,
) -> None:
    """Show how a run stands; the exit code says it too."""

    def show(ledger: "Ledger", _settings: "Settings") -> None:
        from fleet.errors import UsageError
        from producer.status import run_status

        newest = next(iter(ledger.run_ids()), None)
        if run_id is None and newest is None:
            raise UsageError("There are no runs yet. Begin one with `producer enqueue` or `producer run`.")
        _report(run_status(ledger, run_id or newest or ""), as_json=as_json)

    _with_ledger(show)


@cli.command(rich_help_panel="Runs", epilog="Example: producer runs --json")
def runs(as_json: AsJson = False) -> None:
    """List all runs, newest first."""

    def show(ledger: "Ledger", _settings: "Settings") -> None:
        from producer.status import run_status, status_table

        statuses = [run_status(ledger, run_id) for run_id in ledger.run_ids()]
        if as_json:
            _print_json([status.as_json() for status in statuses])
        else:
            _print(status_table(statuses))

    _with_ledger(show)


@cli.command(
    rich_help_panel="Runs", epilog="Example: producer retry cc-main-2024-10.fineweb-edu-classifier.3f2a91c04dd1"
)
def retry(
    run_id: RunId,
    every: Annotated[
        bool, typer.Option("--all", help="Score the done shards again too: their files were lost before publishing.")
    ] = False,
) -> None:
    """Queue the failed shards of a run again, or take up a cancelled run."""

    def do(ledger: "Ledger", settings: "Settings") -> None:
        from fleet.broker import make_app
        from fleet.dispatch import send_due_shards
        from producer.retry import retry_run

        retried = retry_run(ledger, run_id, done_too=every)
        send_due_shards(make_app("producer", settings), ledger, run_id)
        for name in retried.changed:
            _say(f"Shard {name}: the file changed since it was enqueued, and will be read as it is now.")
        _say(f"{retried.queued} shards are queued again.")

    _with_ledger(do)


@cli.command(
    rich_help_panel="Runs", epilog="Example: producer cancel cc-main-2024-10.fineweb-edu-classifier.3f2a91c04dd1"
)
def cancel(run_id: RunId) -> None:
    """Stop a run: workers drop its shards at the next batch. Nothing done is lost; `producer retry` takes it up again."""

    def do(ledger: "Ledger", _settings: "Settings") -> None:
        ledger.spec(run_id)
        ledger.cancel(run_id)
        _say(f"Run {run_id} is cancelled.")

    _with_ledger(do)


@cli.command(
    rich_help_panel="Runs", epilog="Example: producer finalize cc-main-2024-10.fineweb-edu-classifier.3f2a91c04dd1"
)
def finalize(run_id: RunId, as_json: AsJson = False) -> None:
    """Publish a run now, without the shards that failed. A run without failures is published by itself."""

    def do(ledger: "Ledger", _settings: "Settings") -> None:
        from producer.finalizer.publish import NotReady, finalize_run
        from producer.status import ExitCode, run_status

        ledger.spec(run_id)
        outcome = finalize_run(ledger, run_id, without_failed=True)
        if isinstance(outcome, NotReady):
            _say(f"Not published: {outcome.reason}.")
            raise typer.Exit(ExitCode.RUNNING)
        _report(run_status(ledger, run_id), as_json=as_json)

    _with_ledger(do)


@cli.command(
    rich_help_panel="Services",
    epilog="Example: REDIS_URL=redis://10.0.0.5:6379/0 REDIS_PASSWORD_FILE=./redis_password producer finalizer",
)
def finalizer(
    log_level: Annotated[str, typer.Option(help="DEBUG, INFO, WARNING or ERROR.")] = "INFO",
) -> None:
    """Serve a fleet: sweep the ledger for lost messages and dead workers, and publish runs that are done. Run one or more."""
    from producer.finalizer.app import app

    app.worker_main(
        ["worker", "--hostname", "finalizer@%h", "--loglevel", log_level, "--without-mingle", "--without-gossip"]
    )


@cli.command(
    rich_help_panel="Services", epilog="Example: SHARDSIFT_FLOWER_AUTH_FILE=./flower_auth producer flower --port 5555"
)
def flower(
    address: Annotated[
        str, typer.Option(help="Address to listen on; 0.0.0.0 only behind a proxy with TLS.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on.")] = 5555,
) -> None:
    """Show the fleet in a browser with Flower: password, read-only, history kept."""
    from fleet.settings import read_settings
    from producer.flower import run_flower

    run_flower(read_settings(), address=address, port=port)


@cli.command(rich_help_panel="Services", epilog="Example: producer demo --folder ./demo-output")
def demo(
    folder: Annotated[
        Path, typer.Option(help="Where the demo puts everything; an earlier demo there is replaced.")
    ] = Path("demo-output"),
    rows: Annotated[int, typer.Option(min=20, help="Rows in each of the 8 shards.")] = 200,
    workers: Annotated[int, typer.Option(min=1, help="Worker processes, sharing the CPU or the GPUs.")] = 2,
) -> None:
    """See the main job at work, offline: real text, a real small classifier, two workers."""
    from fleet.settings import read_settings
    from producer.demo.command import SHARDS, fit_classifier, make_inputs, sift
    from producer.demo.report import demo_report

    _say(f"1/3  Making {SHARDS} shards of {rows} rows of real English text in {folder}/")
    folder = folder.absolute()
    make_inputs(folder, rows=rows, labelled_rows=max(100, 4 * rows))
    _say("2/3  Fitting a classification head on a frozen MiniLM encoder")
    training = fit_classifier(folder)
    _say(f"3/3  Scoring and filtering with {workers} workers")
    settings = read_settings().model_copy(update={"redis_url": None, "state_dir": folder / "state"})
    result = sift(folder, settings, workers=workers)
    typer.echo(demo_report(folder, training, result))
    raise typer.Exit(result.status.exit_code)


def _fleet() -> "tuple[Settings, Ledger]":
    from fleet.ledger import Ledger
    from fleet.settings import read_settings

    settings = read_settings()
    return settings, Ledger.connect(settings)


def _with_ledger(action: "Callable[[Ledger, Settings], None]") -> None:
    """Call with the fleet's ledger, or with that of this machine's own runs."""
    from fleet.ledger import Ledger
    from fleet.settings import read_settings
    from producer.local.run import machine_redis

    with machine_redis(read_settings(), create=False) as settings:
        action(Ledger.connect(settings), settings)


def _report(status: "RunStatus", *, as_json: bool) -> None:
    """Print a run's status and exit with its code."""
    from producer.status import status_lines, what_next

    if as_json:
        _print_json(status.as_json())
    else:
        for line in (*status_lines(status), *what_next(status)):
            typer.echo(line)
    raise typer.Exit(status.exit_code)


def _print_plan(plan: Any, *, as_json: bool) -> None:
    from producer.plan_report import plan_report

    report = plan_report(plan)
    if as_json:
        _print_json(report)
    else:
        for name, value in report.items():
            typer.echo(
                f"{name.replace('_', ' ')}: {value:,}"
                if isinstance(value, int)
                else f"{name.replace('_', ' ')}: {value}"
            )


def _print_enqueued(done: Any, *, as_json: bool) -> None:
    if as_json:
        _print_json({"run_id": done.run_id, "queue": done.queue, "shards": done.counts.shards, "added": done.added})
        return
    _say(
        f"{done.counts.shards} shards: {done.added} new{_taken_over(done)}, {done.counts.done} done, "
        f"{done.counts.open} to do."
    )
    _say(f"See how it stands: producer status {done.run_id}")
    typer.echo(done.run_id)


def _taken_over(done: Any) -> str:
    return f", {done.restored} taken over from receipts" if done.restored else ""


def _print(renderable: object) -> None:
    from rich.console import Console

    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = _WIDE
    console.print(renderable)


def _print_json(value: object) -> None:
    typer.echo(json.dumps(value, indent=2))


def _say(line: str) -> None:
    """For people, beside the data on stdout."""
    typer.echo(line, err=True)


def main() -> None:
    run_command_line("producer", cli)


if __name__ == "__main__":
    main()
