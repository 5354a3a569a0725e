"""The command `python -m benchmarks.ledger`. Thin: options in, a report out."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markdown import Markdown

from benchmarks.ledger.measure import Plan, measure
from benchmarks.ledger.report import Report
from benchmarks.ledger.scale import measure_size
from benchmarks.results import provenance_of

cli = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@cli.command(epilog="Example: python -m benchmarks.ledger --shards 10000 --workers 1000 --sizes '' --part 1000-workers")
def ledger(
    shards: Annotated[int, typer.Option(min=1, help="Of the run that workers do.")] = 100_000,
    workers: Annotated[int, typer.Option(min=1, help="Simulated ones.")] = 200,
    processes: Annotated[int, typer.Option(min=1, help="That play the workers.")] = 4,
    fleet_seconds: Annotated[float, typer.Option(min=0, help="At the pace of a fleet; then as fast as it goes.")] = 90,
    sizes: Annotated[str, typer.Option(help="Of runs without workers; joined by commas.")] = "10000,100000,1000000",
    output: Annotated[Path, typer.Option(help="Folder of the results files.")] = Path("benchmarks/results"),
    part: Annotated[str, typer.Option(help="What the results files are named by, beside date and machine.")] = "",
) -> None:
    """Measure the ledger with a long run and many workers, on a separate Redis. Writes a results file."""
    found = provenance_of("benchmarks.ledger")
    plan = Plan(shards=shards, workers=workers, processes=processes, fleet_seconds=fleet_seconds)
    report = Report(provenance=found, measured=measure(plan, say=_say), sizes=[])
    written = report.write(output, part=part)
    for size in filter(None, sizes.split(",")):
        report.sizes.append(measure_size(int(size), say=_say))
        written = report.write(output, part=part)  # after each part, so that a stopped benchmark keeps its results
    Console().print(Markdown(report.markdown()))
    _say(f"Written: {', '.join(map(str, written))}")


def _say(line: str) -> None:
    typer.echo(line, err=True)


if __name__ == "__main__":
    cli()
