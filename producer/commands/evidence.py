"""Commands that measure how good a threshold is: draw rows to label, and compute precision and recall."""

import shlex
from pathlib import Path
from typing import Annotated

import typer

from shardsift.fleet.errors import UsageError
from shardsift.fleet.process.command_line import Commands, say
from shardsift.producer.commands.shared import AsJson, ScoreColumn, Source, Target, print_found, read_settings

commands = Commands(panel="Evidence for a threshold")

At = Annotated[
    float | None, typer.Option("--at", metavar="SCORE", help="The threshold in question. Default: that of the filter.")
]
Within = Annotated[
    str | None,
    typer.Option(metavar="COLUMN", help="Also draw or measure each value of this column, such as a topic, by itself."),
]
Positive = Annotated[
    str | None,
    typer.Option(
        metavar="SQL",
        help="Condition that makes a label good, like 'label >= 3'. Default: 1 of 0 and 1, or grades from the threshold on.",
    ),
]


@commands.command(epilog="Example: producer sample ./kept --input './shards/*.parquet' --output labels.csv")
def sample(
    target: Target,
    output: Annotated[Path, typer.Option(metavar="FILE", help="New file: .csv, .jsonl or .parquet.")],
    rows: Annotated[int, typer.Option(min=1, metavar="N", help="Rows to draw.")] = 400,
    at: At = None,
    within: Within = None,
    columns: Annotated[str, typer.Option(metavar="NAME,…", help="Columns of the input to show beside the text.")] = "",
    more: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Rows drawn before, with their labels. Others are drawn where they help most."
        ),
    ] = None,
    positive: Positive = None,
    seed: Annotated[int, typer.Option(metavar="N", help="Another seed draws other rows.")] = 0,
    score_column: ScoreColumn = None,
    source: Source = None,
) -> None:
    """Draw rows of all shards to label, so that `producer evaluate` can measure how good the threshold is.

    The file has each text as it was scored and an empty column label. Fill that column. The file does not show the score.
    """
    from shardsift.fleet.run.options import split_at_commas
    from shardsift.producer.evidence.rows_to_label import rows_to_label
    from shardsift.producer.evidence.sheet import read_labels, refuse_existing, write_sheet
    from shardsift.producer.scores.scored_run import scored_run

    refuse_existing(output)
    sheet = rows_to_label(
        scored_run(target, read_settings()),
        rows=rows,
        at=at,
        score_column=score_column,
        within=within,
        columns=split_at_commas([columns]) if columns else (),
        seed=seed,
        more=read_labels(more) if more else None,
        positive=positive,
        source=tuple(source or ()),
    )
    write_sheet(sheet.table, output)
    evaluate_it = ["producer", "evaluate", target, "--labels", str(output)]
    evaluate_it += [] if at is None else ["--at", repr(at)]
    evaluate_it += ["--score-column", score_column] if score_column else []
    evaluate_it += _inputs(source) if within else []
    for line in (*sheet.lines, f"Fill the column label of {output}, then: {shlex.join(evaluate_it)}"):
        say(line)


@commands.command(epilog="Example: producer evaluate ./kept --labels labels.csv --min-precision 0.8")
def evaluate(
    target: Target,
    labels: Annotated[
        str,
        typer.Option(
            metavar="FILE|RUN|URI",
            help="Labelled rows of `producer sample`; or another run of the same input, whose scores are the labels.",
        ),
    ],
    at: Annotated[
        list[float] | None,
        typer.Option(metavar="SCORE", help="Further threshold. May be repeated: the first is the one in question."),
    ] = None,
    positive: Positive = None,
    within: Within = None,
    judge: Annotated[
        str | None, typer.Option(metavar="NAME", help="Model that gave the labels. All output names it.")
    ] = None,
    unweighted: Annotated[
        bool,
        typer.Option("--unweighted", help="Each row had the same chance to be labelled: needs no stratum and weight."),
    ] = False,
    min_precision: Annotated[
        float | None, typer.Option(min=0, max=1, help="Exit with 1 if the precision may be lower.")
    ] = None,
    min_recall: Annotated[
        float | None, typer.Option(min=0, max=1, help="Exit with 1 if the recall may be lower.")
    ] = None,
    choose: Annotated[
        str | None,
        typer.Option(
            metavar="precision=SHARE",
            help="Name the lowest threshold with this precision, or the highest with a recall, and the command that applies it.",
        ),
    ] = None,
    disagreeing: Annotated[
        int, typer.Option(min=0, metavar="N", help="Show the N rows that both runs rank most differently.")
    ] = 0,
    png: Annotated[
        Path | None, typer.Option("--png", metavar="FILE", help="Draw precision and recall, and the strata's labels.")
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write the figures, without texts, for --evidence of `run` and `refilter`."),
    ] = None,
    update_card: Annotated[
        bool, typer.Option("--update-card", help="Write the figures into the card of the published dataset.")
    ] = False,
    score_column: ScoreColumn = None,
    source: Source = None,
    as_json: AsJson = False,
) -> None:
    """Measure precision and recall of each threshold by labelled rows, with 95 % intervals, over all rows of the run.

    --min-precision and --min-recall are compared with the lower limit of the interval. If --labels names another run, the
    shares are exact, and the correlation of both scores is shown. Needs no model and no GPU.
    """
    from shardsift.fleet.process.wording import is_place
    from shardsift.producer.evidence.evaluate import evaluate_run, labels_from
    from shardsift.producer.evidence.evaluation import Question
    from shardsift.producer.evidence.evidence import write_evidence
    from shardsift.producer.evidence.picture import evaluation_picture
    from shardsift.producer.opening import open_ledger_of
    from shardsift.producer.publishing.publish import publish_evidence
    from shardsift.producer.scores.scored_run import ScoredRun, scored_run
    from shardsift.producer.status import ExitCode

    settings = read_settings()
    run, labelled = scored_run(target, settings), labels_from(labels, settings, is_weighted=not unweighted)
    if isinstance(labelled, ScoredRun) and (output or update_card or unweighted):
        raise UsageError(
            f"{labels} is a run, and --output, --update-card and --unweighted are about rows that were labelled. Leave them "
            "out, or name a sheet of `producer sample` with --labels."
        )
    found = evaluate_run(
        run,
        labelled,
        Question(at=tuple(at or ()), positive=positive, judge=judge, disagreeing=disagreeing),
        score_column=score_column,
        within=within,
        source=tuple(source or ()),
    )
    reaching = found.reaching(choose) if choose else []
    unmet = found.unmet(min_precision=min_precision, min_recall=min_recall)
    if choose and not reaching:
        unmet.append(found.none_reaches(choose))
    print_found(found.lines(), found.as_json(), as_json=as_json)
    if png:
        try:
            png.write_bytes(evaluation_picture(found))
        except OSError as error:
            raise UsageError(f"{png} cannot be written: {error.strerror}.") from error
    if output:
        write_evidence(found, output)
    if update_card:
        publish_evidence(run.output_uri, found.run_id, found)
        if not is_place(target):
            with open_ledger_of(target, settings) as (_, ledger, run_id):
                ledger.set_evidence(run_id, found.to_json())  # for a repair, if the manifest is lost
        say(f"The card of {run.output_uri} has these figures.")
    if reaching:
        refilter_it = _refilter(target, f"{found.score_column} >= {reaching[0].threshold:.9g}", output, source)
        say(f"Chosen: {reaching[0].threshold:.6g}. {refilter_it} --output …")
    for line in unmet:
        say(line)
    raise typer.Exit(ExitCode.FAILED if unmet else ExitCode.DONE)


def _refilter(target: str, where: str, evidence: Path | None, source: list[str] | None) -> str:
    by = ["--evidence", str(evidence)] if evidence else []
    return shlex.join(["producer", "refilter", target, "--where", where, *by, *_inputs(source)])


def _inputs(source: list[str] | None) -> list[str]:
    return [word for uri in source or () for word in ("--input", uri)]
