"""Show a run offline."""

from pathlib import Path
from typing import Annotated

import typer

from fleet.command_line import Commands, say

commands = Commands()


@commands.command(rich_help_panel="Services", epilog="Example: producer demo --folder ./demo-output")
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
