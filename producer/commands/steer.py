"""Commands that change a run: retry, cancel, pause, resume, set and finalize."""

from typing import Annotated

import typer

from shardsift.fleet.process.command_line import Commands, say
from shardsift.fleet.process.wording import counted
from shardsift.producer.commands.shared import RunId, read_settings, report

commands = Commands(panel="Runs")


@commands.command(epilog="Example: producer retry cc-main-2024-10.fineweb-edu-classifier.3f2a91c04dd1")
def retry(run_id: RunId = None) -> None:
    """Queue the failed shards of a run again, or resume a cancelled run."""
    from shardsift.producer.opening import open_ledger_of
    from shardsift.producer.planning.retry import retry_run
    from shardsift.producer.planning.steering import send_shards
    from shardsift.producer.status import run_status
    from shardsift.producer.status.advice import what_it_waits_for
    from shardsift.producer.transient_errors import with_retries

    with open_ledger_of(run_id, read_settings(), to="retry") as (settings, ledger, run_id):
        before = run_status(ledger, run_id)
        retried = with_retries(retry_run)(ledger, run_id)
        send_shards(settings, ledger, run_id)
        for name in retried.changed:
            say(f"Shard {name}: the file has changed since it was enqueued. Its current content will be scored.")
        if before.is_published and not retried.queued:
            say(f"Run {run_id} is published, and none of its shards has failed: nothing to retry.")
            return
        now = run_status(ledger, run_id)
        if before.cancelled:
            say(f"Run {run_id} is resumed: {counted(now.counts.open, 'shard')} to do, {now.counts.done:,} done.")
        else:
            say(f"Run {run_id}: {counted(retried.queued, 'shard')} queued again.")
        for line in what_it_waits_for(now):
            say(line)


@commands.command(epilog="Example: producer cancel cc-main-2024-10.fineweb-edu-classifier.3f2a91c04dd1")
def cancel(run_id: RunId = None) -> None:
    """Stop a run. Workers stop at the next batch, and finished shards are kept.

    `producer retry` resumes the run, unless another has taken its output.
    """
    from shardsift.producer.opening import open_ledger_of

    with open_ledger_of(run_id, read_settings(), to="cancel") as (_, ledger, run_id):
        ledger.cancel(run_id)
        say(f"Run {run_id} is cancelled.")


@commands.command(epilog="Example: producer pause cc-main-2024-10.fineweb-edu-classifier.3f2a91c04dd1")
def pause(run_id: RunId = None) -> None:
    """Pause a run. Workers give its shards back at the next batch, and are free for other runs."""
    from shardsift.producer.opening import open_ledger_of

    with open_ledger_of(run_id, read_settings(), to="pause") as (_, ledger, run_id):
        ledger.pause(run_id)
        say(f"Run {run_id} is paused. Resume it: producer resume {run_id}")


@commands.command(epilog="Example: producer resume cc-main-2024-10.fineweb-edu-classifier.3f2a91c04dd1")
def resume(run_id: RunId = None) -> None:
    """Resume a paused run. One that was paused for its cost needs a higher limit first: `producer set --max-cost`."""
    from shardsift.producer.opening import open_ledger_of
    from shardsift.producer.planning.steering import resume_run, send_shards
    from shardsift.producer.status import run_status
    from shardsift.producer.status.advice import what_it_waits_for

    with open_ledger_of(run_id, read_settings(), to="resume") as (settings, ledger, run_id):
        was_paused = resume_run(ledger, run_id)
        send_shards(settings, ledger, run_id)
        say(f"Run {run_id} is resumed." if was_paused else f"Run {run_id} is not paused.")
        for line in what_it_waits_for(run_status(ledger, run_id)):
            say(line)


@commands.command(
    "set", epilog="Example: producer set cc-main-2024-10.fineweb-edu-classifier.3f2a91c04dd1 --max-workers 8"
)
def set_(
    run_id: RunId = None,
    max_workers: Annotated[
        int | None,
        typer.Option(min=0, metavar="N", help="Let at most N workers score the run at once. 0: any number."),
    ] = None,
    max_cost: Annotated[
        float | None,
        typer.Option(
            min=0,
            metavar="X",
            help="Pause the run when it has cost this much, at SHARDSIFT_PRICE_PER_GPU_HOUR. 0: no limit.",
        ),
    ] = None,
) -> None:
    """Change a run's limit of workers or of cost. Workers above a lowered limit finish their shard first."""
    from shardsift.fleet.errors import UsageError
    from shardsift.producer.opening import open_ledger_of
    from shardsift.producer.planning.steering import send_shards, steered

    if max_workers is None and max_cost is None:
        raise UsageError("Say what to change: --max-workers or --max-cost.")
    with open_ledger_of(run_id, read_settings(), to="change") as (settings, ledger, run_id):
        price = settings.price_per_gpu_hour
        steering = steered(ledger, run_id, max_workers=max_workers, max_cost=max_cost, price_per_gpu_hour=price)
        ledger.steer(run_id, steering)
        send_shards(settings, ledger, run_id)
        say(f"Run {run_id}: {steering}.")


@commands.command(epilog="Example: producer finalize cc-main-2024-10.fineweb-edu-classifier.3f2a91c04dd1")
def finalize(run_id: RunId = None) -> None:
    """Publish a run now, without its failed shards. A run without failures is published automatically."""
    from shardsift.producer.opening import open_ledger_of
    from shardsift.producer.publishing.publish import NotReady, finalize_run, with_findings
    from shardsift.producer.status import ExitCode, run_status
    from shardsift.producer.transient_errors import with_retries

    with open_ledger_of(run_id, read_settings(), to="publish") as (_, ledger, run_id):
        ledger.clear_publish_error(run_id)
        outcome = with_retries(finalize_run)(ledger, run_id, without_failed=True)
        if isinstance(outcome, NotReady):
            say(f"Not published: {outcome.reason}.")
            raise typer.Exit(ExitCode.CANCELLED if ledger.state(run_id).cancelled else ExitCode.RUNNING)
        report(with_findings(ledger, run_status(ledger, run_id), hashes=False), as_json=False)
