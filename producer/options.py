"""The options that `enqueue` and `run` share: one line each, from which both commands and `RunOptions` are made."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Annotated, Any, get_args

import typer

from fleet.defaults import DEFAULT_DATASET, DEFAULT_MODEL

_INPUT, _MODEL, _KEEP, _OUTPUT = "What to read", "What to score it with", "What to keep", "Where to put it"


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """What a user may say about a run. The annotations are the command line's."""

    crawl: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Common Crawl release, like CC-MAIN-2024-10.", rich_help_panel=_INPUT),
    ] = None
    dataset: Annotated[
        str, typer.Option(metavar="REPO", help="Dataset shaped data/<crawl>/*.parquet.", rich_help_panel=_INPUT)
    ] = DEFAULT_DATASET
    input_uris: Annotated[
        tuple[str, ...],
        typer.Option(
            "--input",
            metavar="URI",
            help="Your own Parquet files, instead of --crawl: a file, folder, glob or URL (hf://, s3://). "
            "May be given more than once.",
            rich_help_panel=_INPUT,
        ),
    ] = ()
    text_column: Annotated[str, typer.Option(metavar="NAME", help="Column to score.", rich_help_panel=_INPUT)] = "text"
    limit_shards: Annotated[
        int | None, typer.Option(min=1, help="Read the first shards only.", rich_help_panel=_INPUT)
    ] = None
    limit_rows: Annotated[
        int | None, typer.Option(min=1, help="Read so many rows only, over all shards.", rich_help_panel=_INPUT)
    ] = None
    model: Annotated[
        str, typer.Option(metavar="MODEL", help="Sequence classifier: a Hub name or a folder.", rich_help_panel=_MODEL)
    ] = DEFAULT_MODEL
    model_revision: Annotated[
        str | None,
        typer.Option(
            "--revision",
            metavar="REV",
            help="Its branch, tag or commit. Default: main, as it is now.",
            rich_help_panel=_MODEL,
        ),
    ] = None
    dtype: Annotated[
        str,
        typer.Option(
            metavar="DTYPE",
            help="float32, bfloat16, float16, int8, fp8, or auto: 16-bit where the device is fast at it.",
            rich_help_panel=_MODEL,
        ),
    ] = "auto"
    function_to_apply: Annotated[
        str,
        typer.Option(
            metavar="FUNCTION",
            help="What makes the model's logits into scores: none, sigmoid or softmax.",
            rich_help_panel=_MODEL,
        ),
    ] = "none"
    min_score: Annotated[
        float | None,
        typer.Option(help="Keep rows whose score is at least this. Default: 3.", rich_help_panel=_KEEP),
    ] = None
    where: Annotated[
        str | None,
        typer.Option(
            metavar="SQL", help="Keep rows for which this is true, like 'int_score >= 3'.", rich_help_panel=_KEEP
        ),
    ] = None
    score_blank: Annotated[
        bool,
        typer.Option(
            "--score-blank",
            help="Score empty texts and white space too, which are errored rows.",
            rich_help_panel=_KEEP,
        ),
    ] = False
    keep_all: Annotated[
        bool, typer.Option("--keep-all", help="Keep every row that could be scored.", rich_help_panel=_KEEP)
    ] = False
    output_uri: Annotated[
        str,
        typer.Option(
            "--output",
            metavar="URI",
            help="A folder, a URL, or hf://datasets/<user>/<name>. Required.",
            rich_help_panel=_OUTPUT,
        ),
    ] = ""
    score_column: Annotated[
        str, typer.Option(metavar="NAME", help="Name of the added column.", rich_help_panel=_OUTPUT)
    ] = "score"
    int_score: Annotated[
        bool | None,
        typer.Option(
            "--int-score/--no-int-score",
            help="Add FineWeb-Edu's rounded score. Default: for its classifier.",
            rich_help_panel=_OUTPUT,
        ),
    ] = None


def with_run_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command all fields of RunOptions as options; it gets them as its first argument."""
    shared = [
        parameter.replace(annotation=_as_typer_takes_it(parameter.annotation))
        for parameter in inspect.signature(RunOptions).parameters.values()
    ]
    own = list(inspect.signature(command).parameters.values())[1:]

    @wraps(command)
    def collected(**given: Any) -> None:
        options = {parameter.name: given.pop(parameter.name) for parameter in shared}
        command(RunOptions(**{**options, "input_uris": tuple(options["input_uris"])}), **given)

    parameters = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in (*shared, *own)]
    collected.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    collected.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return collected


def _as_typer_takes_it(annotation: Any) -> Any:
    """An option that may be given more than once is a list to Typer, which takes a tuple for one with several values."""
    if get_args(annotation)[:1] != (tuple[str, ...],):
        return annotation
    return Annotated[(list[str], *annotation.__metadata__)]
