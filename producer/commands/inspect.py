"""Commands that show runs, the workers that they need and what they have published. They change nothing."""

from dataclasses import asdict
from typing import Annotated

import typer

from shardsift.fleet.process.command_line import (
    Commands,
    print_json,
    print_with_whole_ids,
    say,
)
from shardsift.producer.commands.shared import (
    AsJson,
    OnlyRunOrTarget,
    ScoreColumn,
    Source,
    Target,
    print_found,
    read_settings,
    report,
)

commands = Commands(panel="Runs")


@commands.command(epilog="Example: producer status cc-main-2024-10.fineweb-edu-classifier.3f2a91c04dd1")
def status(
    run_id: Annotated[
        str | None,
        typer.Argument(
            metavar="[RUN]",
            help="A run id, or its beginning. Default: the newest run that is under way, otherwise the newest.",
        ),
    ] = None,
    watch: Annotated[bool, typer.Option("--watch", help="Redraw the state until the run is over.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show the state of a run, and check its output if it is published. The exit code reflects the state."""
    from shardsift.producer.opening import open_ledger_of
    from shardsift.producer.status import run_status
    from shardsift.producer.status.watch import watch as show_until_over

    with open_ledger_of(run_id, read_settings()) as (_, ledger, run):
        show = show_until_over if watch else run_status
        found = show(ledger, run)
        if found.publication:
            # Imported here, because the libraries for outputs take a second to load.
            from shardsift.producer.publishing.publish import with_findings

            found = with_findings(ledger, found, hashes=False)
        report(found, as_json=as_json)


@commands.command(epilog="Example: producer runs --json")
def runs(as_json: AsJson = False) -> None:
    """List all runs in the ledger, newest first. Does not check their outputs; `producer status` does."""
    from shardsift.producer.opening import open_ledger
    from shardsift.producer.status import Present, run_statuses
    from shardsift.producer.status.advice import attention_lines
    from shardsift.producer.status.screen import present_line, status_table

    with open_ledger(read_settings()) as (_, ledger):
        present = Present.read(ledger.redis)
        statuses = list(run_statuses(ledger, present))
        if as_json:
            print_json([status.as_json() for status in statuses])
        else:
            print_with_whole_ids(status_table(statuses))
            say(present_line(present))
            for line in attention_lines(statuses):
                say(line)


@commands.command(epilog="Example: producer scores ./scored --near 3 --sample 10 --input './shards/*.parquet'")
def scores(
    target: OnlyRunOrTarget = None,
    near: Annotated[
        float | None,
        typer.Option(metavar="SCORE", help="Show the rows nearest to this score instead, with their texts."),
    ] = None,
    sample: Annotated[int, typer.Option(min=1, metavar="N", help="Rows that --near shows.")] = 10,
    score_column: ScoreColumn = None,
    source: Source = None,
    as_json: AsJson = False,
) -> None:
    """Show how the scores of a run are spread, and how many rows each threshold would keep.

    Counts the shards that are done, in steps of 0.25 for logits and 0.05 for probabilities.
    """
    from shardsift.producer.scores.scored_run import near_lines, rows_of_run_near, scored_run

    run = scored_run(target, read_settings())
    if near is None:
        print_found(run.lines(), run.as_json(), as_json=as_json)
        return
    rows = rows_of_run_near(run, score_column, near=near, count=sample, source=tuple(source or ()))
    print_found(near_lines(rows), [asdict(row) for row in rows], as_json=as_json)


@commands.command(epilog="Example: producer verify ./kept --input './shards/*.parquet'")
def verify(
    target: Target,
    source: Annotated[
        list[str] | None,
        typer.Option(
            "--input", metavar="URI", help="Also compare rows with all or part of the input. May be repeated."
        ),
    ] = None,
    drop_list: Annotated[
        list[str] | None,
        typer.Option(
            "--drop-list", metavar="FILE", help="A drop list of the run that is not on the Hub. May be repeated."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Check a published dataset: hashes, counts, schemas and scores; no duplicate rows, missing shards or foreign files.

    A URI needs no Redis. Exits with 1 if the dataset is damaged or its manifest is lost. Exits with 2 if shardsift has published
    nothing there, if this machine or its token may not read it, or if --input is not the input of the run.
    """
    from shardsift.producer.opening import output_of
    from shardsift.producer.status import ExitCode
    from shardsift.producer.verify.verify import verify as verify_output

    uri, published_run = output_of(target, read_settings())
    found = verify_output(
        uri, source=tuple(source or ()), drop_lists=tuple(drop_list or ()), published_run=published_run
    )
    print_found(found.lines(), found.as_json(), as_json=as_json)
    raise typer.Exit(ExitCode.DONE if found.is_sound else ExitCode.FAILED)
